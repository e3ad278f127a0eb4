/**
 * Clients that send much, or read little, to exhaust the memory of an instance. It runs with the heap and within the memory of
 * the Kubernetes manifest: see "Sizing" in docs/operations.md.
 */
import { readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, expect, it, type TestContext } from 'vitest';
import { useCommand } from '../support/command.js';
import { environmentOf, MEMORY_LIMIT_MIB } from '../support/manifest.js';
import { ndjson } from '../support/ndjson.js';
import { freePort } from '../support/port.js';
import { openSocket } from '../support/rawHttp.js';
import { freshSeed } from '../support/seed.js';
import { peakMemoryOf, SERVE, startServer } from '../support/serverProcess.js';
import { metricOf } from '../support/service.js';
import { until } from '../support/until.js';

/** How long the instance is watched after the last connection of an attack was opened. */
const SECONDS = 4;
const MEBIBYTE = 2 ** 20;
/** Three quarters of the heap that the image sets. */
const MAX_HEAP_MIB = 192;
const MAX_OPEN_FILES = Number(/^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1]);
/** The instance and this process need some for other purposes. */
const AS_MANY_AS_POSSIBLE = Math.min(MAX_OPEN_FILES - 1000, 20_000);

const LONG = 'a'.repeat(15 * 1024);
const HEALTH = 'GET /healthz HTTP/1.1\r\nHost: localhost\r\n';
/** The longest file: 1.5 MB. */
const FILE = 'GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: localhost\r\n';
const BODY = `Content-Length: 100000000\r\n\r\n${LONG.repeat(10)}`;
/**
 * Requests a page of numbers with `entries` carrier statuses each: 5.6 MB for 400, more than the system takes for a client that
 * does not read. Each connection has its own address.
 */
const page = (entries: number, connection: number) =>
  `GET /v1/brandedPhoneNumbers?size=100&reportingGroup=${entries} HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 10.1.${connection >> 8}.${connection % 256}\r\n`;

interface Attack {
  connections: number;
  /** Milliseconds between two new connections, if they are not opened all at once. */
  openInterval?: number;
  /** What a connection sends, by its number. */
  send(connection: number): string | Buffer[];
  /** Milliseconds between two reads of up to 64 KB; without it, a connection is never read. */
  readInterval?: number;
  /** The most memory that the instance may have used, in MiB, if it is more than the limit of the Kubernetes manifest. */
  mebibytes?: number;
}

const attacks: Record<string, Attack> = {
  'headers that never end': { connections: 2000, send: () => `${HEALTH}X: ${LONG}` },
  'headers that never end, on far more connections than are kept': {
    connections: AS_MANY_AS_POSSIBLE,
    send: () => `${HEALTH}X: ${LONG}`,
  },
  'connections that are idle after 15 KB of headers': {
    connections: 2000,
    send: () => `${HEALTH}X: ${LONG}\r\n\r\n`,
    readInterval: 0,
  },
  'files that are not read, requested with 15 KB of headers': {
    connections: 2000,
    send: () => `${FILE}X: ${LONG}\r\n\r\n`,
  },
  'requests behind files that are not read': {
    connections: 500,
    send: () => `${FILE}\r\n${`${HEALTH}\r\n`.repeat(1000)}`,
  },
  'bodies of requests for pages that are not read': {
    connections: 2000,
    send: (connection) => page(400, connection) + BODY,
  },
  'bytes that are not HTTP, after pages that are not read': {
    connections: 4,
    send: (connection) => [Buffer.from(`${page(400, connection)}\r\n`), ...Array(400).fill(Buffer.alloc(MEBIBYTE))],
  },
  'pages that are not read': {
    connections: 250,
    openInterval: 30,
    send: (connection) => `${page(400, connection)}\r\n`,
  },
  'pages that are read slowly, with bodies of requests behind them': {
    connections: 250,
    openInterval: 30,
    send: (connection) => `${page(400, connection)}\r\n${HEALTH}${BODY}`,
    readInterval: 500,
  },
  'pages of 14 MB that are not read': {
    connections: 100,
    openInterval: 100,
    send: (connection) => `${page(1000, connection)}\r\n`,
    mebibytes: 1024,
  },
};

const commands = useCommand();
beforeAll(async () => {
  const carrierStatuses = Array.from({ length: 1000 }, (_, index) => ({
    carrier: `Carrier ${index} of a region`,
    feature: 'brandedCallerId',
    detailedStatus: 'approved.optIn',
  }));
  const [line = ''] = readFileSync('demo/numbers.ndjson', 'utf8').split('\n');
  const { id, ...number } = JSON.parse(line);
  const numbers = Array.from({ length: 200 }, (_, index) => ({
    ...number,
    phoneNumber: `+1415555${String(index).padStart(4, '0')}`,
    reportingGroup: index < 100 ? '400' : '1000',
    carrierStatuses: carrierStatuses.slice(0, index < 100 ? 400 : 1000),
  }));
  expect(await commands.run(['import', '-'], ndjson(numbers))).toMatchObject({ code: 0 });
});

async function expectMemoryKept(attack: Attack, { onTestFinished, expect }: TestContext): Promise<void> {
  const metricsPort = await freePort();
  const { NODE_OPTIONS = '' } = environmentOf('Deployment');
  const instance = await startServer(SERVE, {
    ...{ DATABASE_URL: commands.databaseUrl, TRUST_PROXY: '1', LOG_LEVEL: 'fatal', NODE_OPTIONS },
    METRICS_PORT: String(metricsPort),
  });
  onTestFinished(() => instance.stop('SIGKILL'));
  const metric = (name: string) => metricOf({ metricsUrl: `http://127.0.0.1:${metricsPort}` }, name);
  const end = await begin(attack, instance.url);
  await sleep(SECONDS * 1000);
  const heap = (await metric('nodejs_heap_size_used_bytes')) / MEBIBYTE;
  end();
  // How soon depends on the machine: the instance may have requests of the attack left.
  await until(() => isServed(instance.url), 'another client is served', 120_000);
  const peak = peakMemoryOf(instance);
  console.info(JSON.stringify({ heap, peak, cutOff: await metric('http_connections_cut_off_total') }));
  expect(heap).toBeLessThan(MAX_HEAP_MIB);
  expect(peak).toBeLessThan(attack.mebibytes ?? MEMORY_LIMIT_MIB);
}

const seed = freshSeed();
/** They take a minute and a half of CPU time; so, except before a release, every second one is tried, by the seed. */
const tried = Object.entries(attacks).filter((_, index) => process.env.RELEASE === '1' || (index + seed) % 2 === 0);

// Those that open connections one by one have time for each other.
for (const [name, attack] of tried) {
  const options = { timeout: 300_000, concurrent: attack.openInterval !== undefined };
  const title = `${name} do not exhaust the memory of an instance, and another client is served`;
  it(title, options, (context) => expectMemoryKept(attack, context));
}

/** Opens the connections of an attack; returns a function that closes them. */
async function begin({ connections, openInterval, send, readInterval }: Attack, url: string): Promise<() => void> {
  const sockets: Socket[] = [];
  const connected: Promise<unknown>[] = [];
  for (let connection = 0; connection < connections; connection++) {
    const socket = openSocket(url);
    sockets.push(socket);
    connected.push(new Promise((resolve) => socket.once('connect', resolve).once('close', resolve)));
    for (const piece of [send(connection)].flat()) socket.write(piece);
    socket.pause();
    if (readInterval !== undefined) {
      socket.resume().on('data', () => {
        socket.pause();
        setTimeout(() => socket.resume(), readInterval);
      });
    }
    if (openInterval) await sleep(openInterval);
  }
  await Promise.all(connected);
  return () => {
    for (const socket of sockets) socket.destroy();
  };
}

async function isServed(url: string): Promise<boolean> {
  const response = await fetch(`${url}/v1/brandedPhoneNumbers?size=1`).catch(() => undefined);
  await response?.arrayBuffer().catch(() => {});
  return response?.status === 200;
}
