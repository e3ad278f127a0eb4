/** A TCP proxy that can fail as networks and servers do. */
import { once } from 'node:events';
import { type AddressInfo, createServer, Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * - `passing`: forwards everything
 * - `refusing`: closes all connections, and new ones as soon as they are accepted
 * - `silent`: accepts connections, but forwards no byte and closes none (a cut cable; a hung server)
 * - `slow`: delays every response, by default by 400 ms
 */
type Behaviour = 'passing' | 'refusing' | 'silent' | 'slow';

export interface ToxicProxy {
  port: number;
  /** Returns the URL with the proxy's address. */
  through(url: string): string;
  behave(behaviour: Behaviour, slowerByMs?: number): void;
  /** Silences all open connections forever, as a firewall does that has lost its state; new ones pass. */
  forgetConnections(): void;
  /** Forwards half of the next response of each open connection, and then silences the connection. */
  halveResponses(): void;
  connections(): number;
  /** Returns the number of bytes from clients that were not forwarded. */
  unanswered(): number;
  close(): Promise<void>;
}

/** Opens a proxy on 127.0.0.1 to `targetPort` there; by default on a free port. */
export async function openToxicProxy(targetPort: number, listenPort = 0): Promise<ToxicProxy> {
  let behaviour: Behaviour = 'passing';
  let delayMs = 0;
  let unanswered = 0;
  const pairs = new Set<{ client: Socket; server: Socket; forgotten: boolean; halves: boolean }>();
  const proxy = createServer((client) => {
    if (behaviour === 'refusing') return void client.destroy();
    // Otherwise Nagle's algorithm may delay the end of a response by 40 ms.
    client.setNoDelay();
    const server = new Socket().setNoDelay(true);
    const pair = { client, server, forgotten: false, halves: false };
    pairs.add(pair);
    const passes = () => behaviour !== 'silent' && !pair.forgotten;
    const end = () => {
      if (!passes()) return;
      pairs.delete(pair);
      client.destroy();
      server.destroy();
    };
    client.on('data', (bytes) => {
      if (passes()) server.write(bytes);
      else unanswered += bytes.length;
    });
    const send = (bytes: Buffer) => passes() && client.write(bytes);
    // Responses keep their order.
    let delayed = 0;
    let sent = Promise.resolve();
    server.on('data', (bytes) => {
      if (pair.halves) {
        send(bytes.subarray(0, bytes.length / 2));
        pair.forgotten = true;
      }
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
  proxy.listen(listenPort, '127.0.0.1');
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
    forgetConnections() {
      for (const pair of pairs) pair.forgotten = true;
    },
    halveResponses() {
      for (const pair of pairs) pair.halves = true;
    },
    connections: () => pairs.size,
    unanswered: () => unanswered,
    async close() {
      proxy.close();
      cutAll();
      await once(proxy, 'close');
    },
  };
}
