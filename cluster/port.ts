/** Ports of 127.0.0.1. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** A port that nobody listens on. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** Waits until something listens on the port. */
export async function isListening(port: number, limit = 10_000): Promise<void> {
  for (const end = Date.now() + limit; Date.now() < end; await sleep(20)) {
    const socket = connect(port, '127.0.0.1');
    const isThere = await new Promise((resolve) => {
      socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
    });
    socket.destroy();
    if (isThere) return;
  }
  throw new Error(`nothing listens on ${port}`);
}
