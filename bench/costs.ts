/**
 * `make bench-costs`: prints how long the most expensive requests of each kind keep the event loop busy. The service runs
 * in a worker thread; the CPU time of that thread is read before and after each request, so other load on the machine
 * does not count. Works on Linux only.
 */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { Agent, get } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { closeDatabase, openDatabase } from '../src/database/connect.js';
import { createApiKey } from '../src/keys/keys.js';
import { type ExpensiveRequest, expensiveRequests } from '../test/support/expensiveRequests.js';
import { profileId, writeNumbers } from '../test/support/generatedNumbers.js';
import { startPostgres } from '../test/support/postgresServer.js';
import { machine, table } from './document.js';
import { quantiles } from './medians.js';
import { RESULTS, runCommand } from './program.js';

const NUMBERS = 10_000;
/** How many business profiles the limited key can see. */
const PROFILES = 5000;
/** Requests that are not measured, until the code is compiled and the statements are prepared. */
const WARM_UP = 20;
const MEASURED = 31;
/** The target for every request. */
const MAX_MS = 10;

interface Cost {
  kind: string;
  name: string;
  status: number;
  /** Bytes of the response body. */
  bytes: number;
  /** The median of the event loop's CPU time for one request. */
  milliseconds: number;
}

interface Keys {
  ordinary: string;
  limited: string;
}

const postgres = await startPostgres();
try {
  const keys = await prepareDatabase(postgres.url);
  const { valid, faulty, odd } = expensiveRequests;
  const costs = [
    ...(await measureAll({ valid, faulty, odd }, keys, { RATE_LIMIT_PER_SECOND: '0' })),
    ...(await measureAll({ 'over the limit': [...valid, ...faulty] }, keys, { RATE_LIMIT_PER_SECOND: '1' }, 429)),
  ];
  report(costs);
} finally {
  await postgres.remove();
}

/** Imports numbers and creates the API keys. */
async function prepareDatabase(url: string): Promise<Keys> {
  const file = join(RESULTS, 'costs.ndjson');
  await writeNumbers(file, NUMBERS);
  await runCommand(url, ['migrate']);
  await runCommand(url, ['import', file]);
  await rm(file);
  const database = openDatabase(url);
  const ordinary = await createApiKey(database, 'ordinary');
  const businessProfileIds = Array.from({ length: PROFILES }, (_, i) => profileId(i + 1));
  const limited = await createApiKey(database, 'limited', { businessProfileIds });
  await closeDatabase(database);
  return { ordinary: ordinary.key, limited: limited.key };
}

/** Starts the service, and measures the requests of each kind. If `status` is given, ignores other responses. */
async function measureAll(
  requests: Record<string, ExpensiveRequest[]>,
  keys: Keys,
  settings: Record<string, string>,
  status?: number,
): Promise<Cost[]> {
  const environment = { DATABASE_URL: postgres.url, PORT: '0', LOG_LEVEL: 'silent', AUTH: 'api-key', TRUST_PROXY: '1' };
  const worker = new Worker(new URL('served.js', import.meta.url), { workerData: { ...environment, ...settings } });
  const [{ url, task }] = (await once(worker, 'message')) as [{ url: string; task: string }];
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const cpuMilliseconds = () => Number(readFileSync(`/proc/${task}/schedstat`, 'utf8').split(' ')[0]) / 1e6;

  async function measure(request: ExpensiveRequest): Promise<Omit<Cost, 'kind'>> {
    const times: number[] = [];
    let last = { status: 0, bytes: 0 };
    for (let i = 0; times.length < WARM_UP + MEASURED && i < 10 * (WARM_UP + MEASURED); i++) {
      const before = cpuMilliseconds();
      const response = await send(agent, url, request, request.key ? keys.limited : keys.ordinary);
      // Wait until the event loop is idle again.
      await sleep(3);
      if (status !== undefined && response.status !== status) continue;
      last = response;
      times.push(cpuMilliseconds() - before);
    }
    return { name: request.name, ...last, milliseconds: quantiles(times.slice(WARM_UP)).median };
  }
  const costs: Cost[] = [];
  for (const [kind, requestsOfKind] of Object.entries(requests)) {
    for (const request of requestsOfKind) costs.push({ kind, ...(await measure(request)) });
  }
  agent.destroy();
  worker.postMessage('stop');
  await once(worker, 'exit');
  return costs;
}

function send(agent: Agent, url: string, { path, headers }: ExpensiveRequest, key: string) {
  return new Promise<{ status: number; bytes: number }>((resolve, reject) => {
    get(url, { agent, path, headers: { Authorization: key, ...headers } }, (response) => {
      let bytes = 0;
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
      });
      response.once('end', () => resolve({ status: response.statusCode ?? 0, bytes }));
    }).once('error', reject);
  });
}

/** Prints all costs. @throws if a request was not processed, or takes longer than `MAX_MS` */
function report(costs: Cost[]): void {
  const sorted = costs.toSorted((a, b) => b.milliseconds - a.milliseconds);
  console.log(`${machine()}:\n\n${costTable(sorted)}`);
  const failed = costs.find(({ status }) => status === 0 || status >= 500);
  if (failed) throw new Error(`${failed.kind}, ${failed.name}: the status was ${failed.status}`);
  const worst = sorted[0]?.milliseconds ?? 0;
  if (worst > MAX_MS)
    throw new Error(`the most expensive request takes ${worst.toFixed(1)} ms; at most ${MAX_MS} allowed`);
}

function costTable(costs: Cost[]): string {
  const rows = costs.map(({ kind, name, status, bytes, milliseconds }) => {
    return [kind, name, status, bytes.toLocaleString('en'), `${milliseconds.toFixed(1)} ms`];
  });
  return table(['kind', 'request', 'status', 'bytes', 'event loop'], rows, [0, 1]);
}
