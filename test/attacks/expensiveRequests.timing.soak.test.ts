/** Clients that send expensive requests: an instance still serves other clients, within the manifest's memory limit. */
import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { useDatabase } from '../support/database.js';
import { environmentOf, MEMORY_LIMIT_MIB } from '../support/manifest.js';
import { writeNumbers } from '../support/numbers.js';
import { peakMemoryOf, SERVE, type Server, startServer } from '../support/serverProcess.js';
import { countByStatus, type TimedResponse } from '../support/timedResponses.js';
import { Client } from './client.js';

const CLIENTS = 32;
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

it('clients that send the most expensive requests delay other clients by at most a second, and an instance stays within its memory limit', async () => {
  await flood();
  expect(instance.child.exitCode).toBeNull();
  expect(peakMemoryOf(instance)).toBeLessThan(MEMORY_LIMIT_MIB);
});
