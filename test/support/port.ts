/** Ports of 127.0.0.1. */
import { randomInt } from 'node:crypto';
import { connect, createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** Below the ports that systems give to outgoing connections, which could take one before its server does. */
const FIRST_PORT = 15_000;
const LAST_PORT = 32_000;

/** A port that nobody listens on. */
export async function freePort(): Promise<number> {
  const port = randomInt(FIRST_PORT, LAST_PORT);
  return (await isFree(port)) ? port : freePort();
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  const listens = await new Promise<boolean>((resolve) => {
    server.once('listening', () => resolve(true)).once('error', () => resolve(false));
    server.listen(port, '127.0.0.1');
  });
  if (listens) await new Promise((resolve) => server.close(resolve));
  return listens;
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
