/** Clients that send expensive requests: an instance still serves other clients, within the manifest's memory limit. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { useDatabase } from '../support/database.js';
import { environmentOf, MEMORY_LIMIT_MIB } from '../support/manifest.js';
import { writeNumbers } from '../support/numbers.js';
import { peakMemoryOf, SERVE, type Server, startServer } from '../support/serverProcess.js';
import { countByStatus, type TimedResponse } from '../support/timedResponses.js';
import { until } from '../support/until.js';
import { Client } from './client.js';

const CLIENTS = 32;
const NEVER_READING = 200;
const SECONDS = 10;
const MAX_MEDIAN_MS = 1000;

type Span = Omit<TimedResponse, 'status'>;

let instance: Server;
const database = useDatabase();
let clients: Client[] = [];

beforeAll(() => writeNumbers(database.url));
beforeEach(async () => {
  const { NODE_OPTIONS = '' } = environmentOf('Deployment');
  const settings = { DATABASE_URL: database.url, TRUST_PROXY: '1', NODE_OPTIONS, METRICS_PORT: '0' };
  instance = await startServer(SERVE, settings);
  clients = Array.from({ length: 5 }, (_, i) => new Client(`203.0.113.${i + 1}`));
});
afterEach(() => {
  for (const client of clients) client.close();
  instance.child.kill('SIGKILL');
});

/** Returns the responses to five clients that each send five requests per second. */
async function responsesTo5Clients(seconds: number): Promise<TimedResponse[]> {
  return (await Promise.all(clients.map((client) => client.requestFor(instance.url, seconds, 5)))).flat();
}

/** Requests `/healthz` repeatedly. */
async function requestHealth(seconds: number): Promise<Span[]> {
  const spans: Span[] = [];
  for (const end = performance.now() + seconds * 1000; performance.now() < end; await sleep(200)) {
    const sentAt = performance.now();
    expect((await fetch(`${instance.url}/healthz`)).status).toBe(200);
    spans.push({ sentAt, endedAt: performance.now() });
  }
  return spans;
}

/** Returns the median duration of requests, in milliseconds. */
function medianOf(spans: readonly Span[]): number {
  const times = spans.map(({ sentAt, endedAt }) => endedAt - sentAt).sort((a, b) => a - b);
  return times[Math.floor(times.length / 2)] ?? Number.POSITIVE_INFINITY;
}

/** Fails unless other clients are served in time, but for a few (429, 503), whose count or page a busy machine delays. */
async function expectServedInTime(seconds: number): Promise<void> {
  const [responses, health] = await Promise.all([responsesTo5Clients(seconds), requestHealth(seconds)]);
  const counts = countByStatus(responses);
  const figures = { counts, median: medianOf(responses), health: medianOf(health), mebibytes: peakMemoryOf(instance) };
  console.info(JSON.stringify(figures, (_name, value) => (typeof value === 'number' ? Math.round(value) : value)));
  expect(Object.keys(counts).filter((status) => !['200', '429', '503'].includes(status))).toEqual([]);
  expect(counts[200]).toBeGreaterThan(0.7 * responses.length);
  expect(figures.median).toBeLessThan(MAX_MEDIAN_MS);
  expect(figures.health).toBeLessThan(MAX_MEDIAN_MS);
}

/** Sends the most expensive requests for ten seconds; the other clients send theirs in the middle of that. */
async function flood(): Promise<void> {
  const script = ['--import', 'tsx', 'test/attacks/expensiveFlood.ts', instance.url, String(CLIENTS), String(SECONDS)];
  const flooding = spawn(process.execPath, script, { stdio: ['ignore', 'pipe', 'inherit'] });
  const counted = text(flooding.stdout);
  await sleep(2000);
  await expectServedInTime(SECONDS - 4);
  const statuses = JSON.parse(await counted);
  expect(statuses).toMatchObject({ 200: expect.any(Number), 400: expect.any(Number) });
  expect(statuses.none).toBeUndefined();
}

/** Sends short requests for long responses, which are never read. */
async function neverRead(): Promise<void> {
  const { hostname, port } = new URL(instance.url);
  const sockets: Socket[] = [];
  let sent = 0;
  const faults = Array(50)
    .fill(`${'%00'.repeat(100)}=`)
    .join('&');
  // Each from a different address, so that the limit refuses none.
  const request = (path: string) =>
    `GET ${path} HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 10.${(++sent >> 16) & 255}.${(sent >> 8) & 255}.${sent & 255}\r\n\r\n`;
  for (let i = 0; i < NEVER_READING; i++) {
    const socket = connect(Number(port), hostname).on('error', () => {});
    sockets.push(socket);
    await once(socket, 'connect');
    socket.pause();
    for (let j = 0; j < 3; j++) {
      socket.write(request('/openapi.json') + request('/v1/brandedPhoneNumbers?size=100'));
      socket.write(request(`/v1/brandedPhoneNumbers?${faults}`));
    }
  }
  // Clients have to wait while these requests are processed; from then on, only their responses take memory.
  const isOver = async () => (await responsesTo5Clients(1)).every(({ status }) => status === 200);
  await until(isOver, 'the requests are processed', 60_000);
  await expectServedInTime(SECONDS);
  for (const socket of sockets) socket.destroy();
}

it.each([
  [`${CLIENTS} clients that send the most expensive requests`, flood],
  [`${NEVER_READING} connections that never read`, neverRead],
])(
  '%s delay other clients by at most a second, and an instance stays within its memory limit',
  async (_name, attack) => {
    await attack();
    expect(instance.child.exitCode).toBeNull();
    expect(peakMemoryOf(instance)).toBeLessThan(MEMORY_LIMIT_MIB);
  },
);
