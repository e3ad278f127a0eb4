/** A TCP proxy that can behave as networks and servers do when they fail. */
import { once } from 'node:events';
import { type AddressInfo, createServer, Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * - `passing`: as if the proxy were not there
 * - `refusing`: connections are cut, and new ones closed as soon as they are accepted
 * - `silent`: no byte passes any more, but no connection ends (a cut cable; a hung server); new ones are accepted, too
 * - `slow`: every response takes longer, by 400 ms unless told otherwise
 */
type Behaviour = 'passing' | 'refusing' | 'silent' | 'slow';

export interface ToxicProxy {
  port: number;
  /** The same address, through the proxy. */
  through(url: string): string;
  behave(behaviour: Behaviour, slowerByMs?: number): void;
  /** Open connections stay silent forever and new ones pass, as when a firewall has forgotten a connection. */
  forgetConnections(): void;
  connections(): number;
  /** Bytes that clients have sent and that were not passed on. */
  unanswered(): number;
  close(): Promise<void>;
}

/** Opens a proxy on 127.0.0.1 to `targetPort` there. */
export async function openToxicProxy(targetPort: number): Promise<ToxicProxy> {
  let behaviour: Behaviour = 'passing';
  let delayMs = 0;
  let unanswered = 0;
  const pairs = new Set<{ client: Socket; server: Socket; forgotten: boolean }>();
  const proxy = createServer((client) => {
    if (behaviour === 'refusing') return void client.destroy();
    const server = new Socket();
    const pair = { client, server, forgotten: false };
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
    // As TCP does, no response overtakes a slower one before it.
    let delayed = 0;
    let sent = Promise.resolve();
    server.on('data', (bytes) => {
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
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  const { port } = proxy.address() as AddressInfo;
  const cut = (those: Iterable<{ client: Socket; server: Socket }>) => {
    for (const { client, server } of those) {
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
      if (next === 'refusing') cut(pairs);
    },
    forgetConnections() {
      for (const pair of pairs) pair.forgotten = true;
    },
    connections: () => pairs.size,
    unanswered: () => unanswered,
    async close() {
      proxy.close();
      cut(pairs);
      await once(proxy, 'close');
    },
  };
}
