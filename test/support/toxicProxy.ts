/** A TCP proxy that can fail as networks and servers do. */
import { once } from 'node:events';
import { type AddressInfo, createServer, Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { onTestFinished } from 'vitest';
import { errorResponse, READY } from './impostor.js';

/**
 * - `passing`: forwards everything
 * - `refusing`: closes all connections, and new ones as soon as they are accepted
 * - `silent`: accepts connections, but forwards no byte and closes none (a cut cable; a hung server)
 * - `slow`: delays every response, by default by 400 ms
 */
type Behaviour = 'passing' | 'refusing' | 'silent' | 'slow';

/**
 * - `half, then the end`, `half, then a reset`: forwards half of it, and closes the connection
 * - `half, then silence`: forwards half of it, and then silences the connection
 * - `rows before an error`: forwards it up to its first row, and an error in place of the rest; the connection stays open, and
 *   responses behind it are forwarded
 */
type Break = 'half, then the end' | 'half, then a reset' | 'half, then silence' | 'rows before an error';

export interface ToxicProxy {
  port: number;
  /** Returns the URL with the proxy's address. */
  through(url: string): string;
  behave(behaviour: Behaviour, slowerByMs?: number): void;
  /** Closes further connections as soon as they are accepted, while this many are open. */
  limitTo(count: number): void;
  /** Silences all open connections forever, as a firewall does that has lost its state; new ones pass. */
  forgetConnections(): void;
  /** Calls `act` as soon as this many more messages, or parts of messages, of clients were forwarded. */
  afterMessages(count: number, act: () => void): void;
  /** Breaks the next response of each open connection in this way. */
  breakResponses(how: Break): void;
  /** Resets all open connections. */
  reset(): void;
  /** Breaks the login of the next connection, by default with its end. */
  breakLogin(how?: Break): void;
  /** Returns the number of connections that were accepted. */
  accepted(): number;
  /** Returns the number of bytes from clients that were not forwarded. */
  unanswered(): number;
  close(): Promise<void>;
}

/** The two connections of a client. */
interface Pair {
  client: Socket;
  server: Socket;
  forgotten: boolean;
  breaks?: Break;
}

/** Opens a proxy to `targetPort` of 127.0.0.1, at a port there, by default a free one, or at the path of a socket. */
export async function openToxicProxy(targetPort: number, at: number | string = 0): Promise<ToxicProxy> {
  let behaviour: Behaviour = 'passing';
  let delayMs = 0;
  let unanswered = 0;
  let accepted = 0;
  let mostOpen = Number.POSITIVE_INFINITY;
  const pairs = new Set<Pair>();
  let loginBreak: Break | undefined;
  let messagesLeft = 0;
  let act = () => {};
  const proxy = createServer((client) => {
    accepted++;
    if (behaviour === 'refusing' || pairs.size >= mostOpen) return void client.destroy();
    // Otherwise Nagle's algorithm may delay the end of a response by 40 ms.
    client.setNoDelay();
    const server = new Socket().setNoDelay(true);
    const pair: Pair = { client, server, forgotten: false };
    if (loginBreak) pair.breaks = loginBreak;
    loginBreak = undefined;
    pairs.add(pair);
    const passes = () => behaviour !== 'silent' && !pair.forgotten;
    const end = () => {
      if (!passes()) return;
      pairs.delete(pair);
      client.destroy();
      server.destroy();
    };
    client.on('data', (bytes) => {
      if (!passes()) unanswered += bytes.length;
      else {
        server.write(bytes);
        if (--messagesLeft === 0) act();
      }
    });
    const send = (bytes: Buffer) => passes() && client.write(bytes);
    // Responses keep their order.
    let delayed = 0;
    let sent = Promise.resolve();
    server.on('data', (bytes) => {
      if (pair.breaks && breakResponse(pair, bytes)) return;
      if (behaviour !== 'slow' && delayed === 0) return void send(bytes);
      const due = performance.now() + (behaviour === 'slow' ? delayMs : 0);
      delayed++;
      sent = sent.then(async () => {
        await sleep(Math.max(0, due - performance.now()));
        send(bytes);
        delayed--;
      });
    });
    for (const socket of [client, server]) socket.on('error', () => {}).on('close', end);
    server.connect(targetPort, '127.0.0.1');
  });
  proxy.listen(typeof at === 'string' ? { path: at } : { port: at, host: '127.0.0.1' });
  await once(proxy, 'listening');
  const { port } = proxy.address() as AddressInfo;
  const cutAll = () => {
    for (const { client, server } of pairs) {
      client.destroy();
      server.destroy();
    }
  };
  return {
    port,
    through(url) {
      const changed = new URL(url);
      changed.host = `127.0.0.1:${port}`;
      return changed.href;
    },
    behave(next, slowerByMs = 400) {
      behaviour = next;
      delayMs = slowerByMs;
      if (next === 'refusing') cutAll();
    },
    limitTo(count) {
      mostOpen = count;
    },
    forgetConnections() {
      for (const pair of pairs) pair.forgotten = true;
    },
    afterMessages(count, next) {
      messagesLeft = count;
      act = next;
    },
    breakResponses(how) {
      for (const pair of pairs) pair.breaks = how;
    },
    reset() {
      for (const { client } of pairs) client.resetAndDestroy();
    },
    breakLogin(how = 'half, then the end') {
      loginBreak = how;
    },
    accepted: () => accepted,
    unanswered: () => unanswered,
    async close() {
      proxy.close();
      cutAll();
      await once(proxy, 'close');
    },
  };
}

/** Opens a proxy to the server of a URL for the current test. */
export async function useProxy(url: string): Promise<ToxicProxy> {
  const proxy = await openToxicProxy(Number(new URL(url).port));
  onTestFinished(() => proxy.close());
  return proxy;
}

/** Breaks a response of PostgreSQL. Returns whether it did: some responses have no rows, or are not whole. */
function breakResponse(pair: Pair, bytes: Buffer): boolean {
  const { client, breaks } = pair;
  if (breaks === 'rows before an error') {
    const afterRow = endOfNext('D', bytes, 0);
    const afterResponse = endOfNext('Z', bytes, afterRow);
    if (afterRow === undefined || afterResponse === undefined) return false;
    delete pair.breaks;
    const error = errorResponse('57014', 'canceling statement');
    client.write(Buffer.concat([bytes.subarray(0, afterRow), error, READY, bytes.subarray(afterResponse)]));
    return true;
  }
  delete pair.breaks;
  if (breaks === 'half, then silence') pair.forgotten = true;
  client.write(bytes.subarray(0, bytes.length / 2), () => {
    if (breaks === 'half, then a reset') client.resetAndDestroy();
    else if (!pair.forgotten) client.destroy();
  });
  return true;
}

/** Returns where the first message of a type ends, from a message that begins at `start`. */
function endOfNext(type: 'D' | 'Z', bytes: Buffer, start: number | undefined): number | undefined {
  if (start === undefined || start + 5 > bytes.length) return undefined;
  const end = start + 1 + bytes.readUInt32BE(start + 1);
  if (bytes[start] !== type.charCodeAt(0)) return endOfNext(type, bytes, end);
  return end <= bytes.length ? end : undefined;
}
