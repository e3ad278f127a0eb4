/** Connections that end in the middle of something: each kind of input, behind each kind of request, with each end. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import { whileLocked } from '../support/connection.js';
import { freePort } from '../support/port.js';
import { openSocket } from '../support/rawHttp.js';
import { MAIN, type Server, startServer } from '../support/serverProcess.js';
import { metricOf } from '../support/service.js';
import { until } from '../support/until.js';

const HOST = 'HTTP/1.1\r\nHost: x\r\n';
const LIST = `GET /v1/brandedPhoneNumbers ${HOST}\r\n`;
const FILE = `GET /docs/swagger-ui-bundle.js ${HOST}\r\n`;
const SHORT = `GET / ${HOST}\r\n`;
/** The requests' limit of 2 s, 0.5 s, and 1 s for PostgreSQL; and what a busy machine needs. */
const STOP_MS = 10_000;
/** The longest time limit: 2 s for a request and 15 s for its response. */
const TIME_LIMIT_MS = 18_000;

/** What a connection sent before its input. The list waits for a lock; the file is not read. */
const BEFORE = {
  nothing: '',
  'a request': LIST,
  'an unread file': FILE,
  'a request too early': LIST + SHORT,
};
const INPUTS = {
  nothing: '',
  'a request': SHORT,
  garbage: 'garbage\r\n\r\n',
  'endless headers': `GET / ${HOST}X-Long: ${'a'.repeat(140_000)}`,
  Upgrade: `GET / ${HOST}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n`,
  CONNECT: `CONNECT x:1 ${HOST}\r\n`,
  Expect: `GET / ${HOST}Expect: 100-continue\r\nContent-Length: 10\r\n\r\n`,
  'a body that ends early': `GET / ${HOST}Content-Length: 10\r\n\r\nhalf`,
  'a bad target': `GET http://[::1/ ${HOST}\r\n`,
};
/** A reset; and the end of what the client sends, which then reads for half a second. */
const ENDS = [
  (socket: Socket) => socket.resetAndDestroy(),
  (socket: Socket) => {
    socket.resume().end();
    setTimeout(() => socket.destroy(), 500);
  },
];

type Instance = Server & { metricsUrl: string };

/** Runs `test` with the built service on a version of Node; requests take at most 2 seconds, and there is no drain. */
async function withService(node: string, databaseUrl: string, test: (instance: Instance) => Promise<void>) {
  const METRICS_PORT = String(await freePort());
  const settings = {
    TRUST_PROXY: '1',
    RATE_LIMIT_PER_SECOND: '0',
    REQUEST_TIMEOUT_SECONDS: '2',
    DRAIN_SECONDS: '0',
    LOG_LEVEL: 'fatal',
    KEEP_ALIVE_SECONDS: '5',
  };
  const server = await startServer([node, MAIN, 'serve'], { DATABASE_URL: databaseUrl, METRICS_PORT, ...settings });
  const instance = { ...server, metricsUrl: `http://127.0.0.1:${METRICS_PORT}` };
  await test(instance).finally(() => server.stop('SIGKILL'));
}

async function open({ url }: Instance): Promise<Socket> {
  const socket = openSocket(url, { allowHalfOpen: true });
  await once(socket, 'connect');
  return socket.pause();
}

type Before = keyof typeof BEFORE;
type Input = keyof typeof INPUTS;
const befores = Object.keys(BEFORE) as Before[];
const inputs = Object.keys(INPUTS) as Input[];

/** Sends each of these inputs on connections of their own, one after the other, and ends them in each way. */
async function endAll(instance: Instance, before: Before, kinds: Input[]): Promise<void> {
  for (const input of kinds) {
    for (const end of ENDS) {
      for (const waitMs of [0, 8]) {
        const socket = await open(instance);
        socket.write(BEFORE[before] + INPUTS[input]);
        // At some ends, the service has read all of it; at others, not.
        await sleep(waitMs);
        end(socket);
      }
    }
  }
}

/** Opens a connection for each input behind each kind of request; returns them. */
async function openAll(instance: Instance): Promise<Socket[]> {
  const sockets: Socket[] = [];
  for (const before of befores) {
    for (const input of inputs) {
      const socket = await open(instance);
      sockets.push(socket);
      socket.write(BEFORE[before] + INPUTS[input]);
    }
  }
  return sockets;
}

/** Returns the number of sockets that the service has accepted and not closed. */
function socketsOf({ url }: Instance): number {
  const port = Number(new URL(url).port).toString(16).toUpperCase().padStart(4, '0');
  // The local address, the remote one, which is 0 of the socket that listens, and the inode, which is 0 of a closed socket.
  const socket = new RegExp(`^ *\\d+: [0-9A-F]{8}:${port} (?!00000000:0000)(?:\\S+ +){7}[1-9]`, 'gm');
  return readFileSync('/proc/net/tcp', 'utf8').match(socket)?.length ?? 0;
}

/** Fails unless the service runs, nothing is left of earlier connections, and a client gets a page. */
async function expectNothingLeft(instance: Instance): Promise<void> {
  expect(instance.child.exitCode ?? instance.child.signalCode).toBeNull();
  await until(() => socketsOf(instance) === 0, 'no socket is left', 120_000);
  await until(async () => (await metricOf(instance, 'database_queries_in_flight')) === 0, 'no reads are in flight');
  expect((await fetch(`${instance.url}/v1/brandedPhoneNumbers`)).status).toBe(200);
}

/** Fails unless the service, on a version of Node, survives connections that end in the middle of something. */
export async function expectSurvival(
  node: string,
  databaseUrl: string,
  { before: kinds = befores, input = inputs } = {},
): Promise<void> {
  await withService(node, databaseUrl, async (instance) => {
    for (const before of kinds) {
      await whileLocked(databaseUrl, 'LOCK items', () => endAll(instance, before, input));
      await expectNothingLeft(instance);
    }
  });
}

/** Fails unless the service, on a version of Node, stops in time in the middle of everything. */
export async function expectStop(node: string, databaseUrl: string): Promise<void> {
  await withService(node, databaseUrl, async (instance) => {
    const { child } = instance;
    await whileLocked(databaseUrl, 'LOCK items', async () => {
      const sockets = await openAll(instance);
      const begin = performance.now();
      child.kill('SIGTERM');
      await once(child, 'exit');
      expect(child.exitCode).toBe(0);
      expect(performance.now() - begin).toBeLessThan(STOP_MS);
      for (const socket of sockets) socket.destroy();
    });
  });
}

/** Fails unless the service, on a version of Node, closes each connection within its time limits. */
export async function expectTimeLimits(node: string, databaseUrl: string): Promise<void> {
  await withService(node, databaseUrl, async (instance) => {
    const sockets = await whileLocked(databaseUrl, 'LOCK items', () => openAll(instance));
    await sleep(TIME_LIMIT_MS);
    await expectNothingLeft(instance);
    for (const socket of sockets) socket.destroy();
  });
}
