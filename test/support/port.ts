/** Ports of 127.0.0.1. */
import { randomInt } from 'node:crypto';
import { connect, createServer } from 'node:net';
import { until } from './until.js';

/** Below the ephemeral ports: an outgoing connection could take one of those before the test's server listens. */
const FIRST_PORT = 15_000;
const LAST_PORT = 32_000;

/** Returns a free port. */
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
export function isListening(port: number, timeoutMs = 10_000): Promise<void> {
  const connects = async () => {
    const socket = connect(port, '127.0.0.1');
    const isThere = await new Promise<boolean>((resolve) => {
      socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
    });
    socket.destroy();
    return isThere;
  };
  return until(connects, `port ${port} is open`, timeoutMs);
}
