/** Ports of 127.0.0.1, and networks in which tests use the ports of deploy/. */
import { randomInt } from 'node:crypto';
import { connect, createServer, type Server } from 'node:net';
import { until } from './until.js';

/** Below the ephemeral ports: an outgoing connection could take one of those before the test's server listens. */
const FIRST_PORT = 15_000;
const LAST_PORT = 32_000;
/** In no file of deploy/, and never a free port of a test. */
const CLAIM_PORT = FIRST_PORT - 1;

/** Returns a free port, which no other test gets before this process exits. */
export async function freePort(): Promise<number> {
  const port = 2 * randomInt(FIRST_PORT / 2, LAST_PORT / 2);
  // Until the test's server listens, the odd port after it tells other processes to choose another one.
  const isClaimed = await listens(createServer().unref(), port + 1, '127.0.0.1');
  return isClaimed && (await isFree(port)) ? port : freePort();
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  const isUnused = await listens(server, port, '127.0.0.1');
  if (isUnused) await new Promise((resolve) => server.close(resolve));
  return isUnused;
}

/** Returns a loopback network, such as `127.7`, which no other test gets before this process exits. */
export async function claimNetwork(): Promise<string> {
  const network = `127.${randomInt(1, 255)}`;
  // Linux accepts all of 127.0.0.0/8. Other processes can't listen there, so they choose another network.
  return (await listens(createServer().unref(), CLAIM_PORT, `${network}.0.1`)) ? network : claimNetwork();
}

function listens(server: Server, port: number, address: string): Promise<boolean> {
  return new Promise((resolve) => {
    server.once('listening', () => resolve(true)).once('error', () => resolve(false));
    server.listen(port, address);
  });
}

/** Waits until something listens on the port. */
export function isListening(port: number, { host = '127.0.0.1', timeoutMs = 10_000 } = {}): Promise<void> {
  const connects = async () => {
    const socket = connect(port, host);
    const isThere = await new Promise<boolean>((resolve) => {
      socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
    });
    socket.destroy();
    return isThere;
  };
  return until(connects, `port ${port} is open`, timeoutMs);
}
