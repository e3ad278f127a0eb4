/** Clients that send expensive requests: an instance still serves other clients, within the manifest's memory limit. */
import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { useDatabase } from '../support/database.js';
import { environmentOf, MEMORY_LIMIT_MIB } from '../support/manifest.js';
import { writeNumbers } from '../support/numbers.js';
import { peakMemoryOf, SERVE, type Server, startServer } from '../support/serverProcess.js';
import { countByStatus, type TimedResponse } from '../support/timedResponses.js';

const CLIENTS = 32;
const SECONDS = 10;
const MAX_MEDIAN_MS = 1000;

let instance: Server;
const database = useDatabase();

beforeAll(async () => {
  await writeNumbers(database.url);
  const { NODE_OPTIONS = '' } = environmentOf('Deployment');
  const settings = { DATABASE_URL: database.url, TRUST_PROXY: '1', NODE_OPTIONS, METRICS_PORT: '0' };
  instance = await startServer(SERVE, settings);
});
afterAll(() => void instance?.child.kill('SIGKILL'));

/** Sends a request of the client with this address; an error is a response without a status. */
async function send(path: string, address: string): Promise<TimedResponse> {
  const sentAt = performance.now();
  const status = await fetch(instance.url + path, { headers: { 'X-Forwarded-For': address } })
    .then((response) => response.arrayBuffer().then(() => response.status))
    .catch(() => undefined);
  return { status, sentAt, endedAt: performance.now() };
}

/** Sends five requests a second, without waiting for responses. */
async function sendFor(seconds: number, path: string, address: string): Promise<TimedResponse[]> {
  const responses: Promise<TimedResponse>[] = [];
  const begin = performance.now();
  while (responses.length < 5 * seconds) {
    responses.push(send(path, address));
    await sleep(Math.max(0, begin + 200 * responses.length - performance.now()));
  }
  return Promise.all(responses);
}

/** Returns the median duration of requests, in milliseconds. */
function medianOf(responses: readonly TimedResponse[]): number {
  const times = responses.map(({ sentAt, endedAt }) => endedAt - sentAt).sort((a, b) => a - b);
  return times[Math.floor(times.length / 2)] ?? Number.POSITIVE_INFINITY;
}

it('clients that send the most expensive requests delay other clients by at most a second, and an instance stays within its memory limit', async () => {
  const script = ['--import', 'tsx', 'test/attacks/expensiveFlood.ts', instance.url, String(CLIENTS), String(SECONDS)];
  const flooding = spawn(process.execPath, script, { stdio: ['ignore', 'pipe', 'inherit'] });
  const counted = text(flooding.stdout);
  await sleep(2000);
  // In the middle of the flood.
  const clients = [1, 2, 3, 4, 5].map((i) => sendFor(SECONDS - 4, '/v1/brandedPhoneNumbers', `203.0.113.${i}`));
  const [health = [], ...pages] = await Promise.all([sendFor(SECONDS - 4, '/healthz', ''), ...clients]);
  const responses = pages.flat();
  const counts = countByStatus(responses);
  const figures = { counts, median: medianOf(responses), health: medianOf(health), mebibytes: peakMemoryOf(instance) };
  console.info(JSON.stringify(figures, (_name, value) => (typeof value === 'number' ? Math.round(value) : value)));
  expect(countByStatus(health)).toEqual({ 200: health.length });
  // But for a few, whose count or page a busy machine delays.
  expect(Object.keys(counts).filter((status) => !['200', '429', '503'].includes(status))).toEqual([]);
  expect(counts[200]).toBeGreaterThan(0.7 * responses.length);
  expect(figures.median).toBeLessThan(MAX_MEDIAN_MS);
  expect(figures.health).toBeLessThan(MAX_MEDIAN_MS);
  const statuses = JSON.parse(await counted);
  expect(statuses).toMatchObject({ 200: expect.any(Number), 400: expect.any(Number) });
  expect(statuses.none).toBeUndefined();
  expect(instance.child.exitCode).toBeNull();
  expect(peakMemoryOf(instance)).toBeLessThan(MEMORY_LIMIT_MIB);
});
