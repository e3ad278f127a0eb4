/**
 * `make bench-costs`: how long the most expensive requests of each kind keep the event loop busy; it prints the table and
 * writes it to docs/performance.md. The service runs in its own thread, whose CPU time is read before and after each
 * request: that of the event loop alone, no matter how busy the machine is. On Linux only.
 */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { Agent, get } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { closeDatabase, openDatabase } from '../src/database/connect.js';
import { migrateDatabase } from '../src/database/migrations.js';
import { createApiKey } from '../src/keys/keys.js';
import { migrationsFolder } from '../src/packageFolder.js';
import { type ExpensiveRequest, expensiveRequests } from '../test/support/expensiveRequests.js';
import { profileId, writeNumbers } from '../test/support/generatedNumbers.js';
import { startPostgres } from '../test/support/postgresServer.js';
import { quantiles } from './latency.js';
import { machine, RESULTS } from './report.js';

const NUMBERS = 10_000;
const PROFILES = 5000;
/** Requests before the measured ones, until the code is compiled and the statements are prepared; and the measured ones. */
const WARM_UP = 20;
const ROUNDS = 31;
const TARGET_MS = 10;
/** Requests of each kind in the document. */
const SHOWN = 2;
const DOCUMENT = 'docs/performance.md';

interface Cost {
  kind: string;
  name: string;
  status: number;
  /** Bytes of the response's body. */
  bytes: number;
  /** Milliseconds of the event loop, the median. */
  milliseconds: number;
}

const postgres = await startPostgres();
try {
  const keys = await prepare(postgres.url);
  const { valid, faulty, odd } = expensiveRequests;
  const costs: Cost[] = [];
  await using(postgres.url, { RATE_LIMIT_PER_SECOND: '0' }, async (measure) => {
    for (const [kind, requests] of Object.entries({ valid, faulty, odd })) {
      for (const request of requests) costs.push({ kind, ...(await measure(request, keyOf(request))) });
    }
  });
  await using(postgres.url, { RATE_LIMIT_PER_SECOND: '1' }, async (measure) => {
    for (const request of [...valid, ...faulty]) {
      costs.push({ kind: 'over the limit', ...(await measure(request, keyOf(request), 429)) });
    }
  });
  await report(costs);

  function keyOf({ key }: ExpensiveRequest): string {
    return key ? keys.limited : keys.ordinary;
  }
} finally {
  await postgres.remove();
}

/** Fills the database and makes the keys. */
async function prepare(url: string): Promise<{ ordinary: string; limited: string }> {
  await migrateDatabase(url, migrationsFolder);
  await mkdir(RESULTS, { recursive: true });
  const file = join(RESULTS, 'costs.ndjson');
  await writeNumbers(file, NUMBERS);
  execFileSync(process.execPath, ['dist/src/main.js', 'import', file], {
    env: { ...process.env, DATABASE_URL: url },
    stdio: 'ignore',
  });
  await rm(file);
  const database = openDatabase(url);
  const ordinary = await createApiKey(database, 'ordinary');
  const businessProfileIds = Array.from({ length: PROFILES }, (_, i) => profileId(i + 1));
  const limited = await createApiKey(database, 'limited', { businessProfileIds });
  await closeDatabase(database);
  return { ordinary: ordinary.key, limited: limited.key };
}

type Measure = (request: ExpensiveRequest, key: string, status?: number) => Promise<Omit<Cost, 'kind'>>;

/** Serves while `work` measures requests; `measure` counts only those that are answered with `status`, if given. */
async function using(url: string, settings: Record<string, string>, work: (measure: Measure) => Promise<void>) {
  const worker = new Worker(new URL('served.js', import.meta.url), {
    workerData: { DATABASE_URL: url, PORT: '0', LOG_LEVEL: 'silent', AUTH: 'api-key', TRUST_PROXY: '1', ...settings },
  });
  const [{ url: origin, task }] = (await once(worker, 'message')) as [{ url: string; task: string }];
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  /** CPU time of the thread so far, in milliseconds. */
  const cpuTime = () => Number(readFileSync(`/proc/${task}/schedstat`, 'utf8').split(' ')[0]) / 1e6;

  await work(async (request, key, status) => {
    const times: number[] = [];
    let outcome = { status: 0, bytes: 0 };
    for (let i = 0; times.length < WARM_UP + ROUNDS && i < 10 * (WARM_UP + ROUNDS); i++) {
      const before = cpuTime();
      const { status: actual, bytes } = await ask(agent, origin, request, key);
      // Until the event loop waits again.
      await sleep(3);
      if (status !== undefined && actual !== status) continue;
      outcome = { status: actual, bytes };
      times.push(cpuTime() - before);
    }
    return { name: request.name, ...outcome, milliseconds: quantiles(times.slice(WARM_UP)).median };
  });
  agent.destroy();
  worker.postMessage('stop');
  await once(worker, 'exit');
}

function ask(agent: Agent, origin: string, { path, headers }: ExpensiveRequest, key: string) {
  return new Promise<{ status: number; bytes: number }>((resolve, reject) => {
    get(origin, { agent, path, headers: { Authorization: key, ...headers } }, (response) => {
      let bytes = 0;
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
      });
      response.once('end', () => resolve({ status: response.statusCode ?? 0, bytes }));
    }).once('error', reject);
  });
}

/** The most expensive ones of each kind, and the cheapest valid one to compare them with. */
async function report(costs: Cost[]): Promise<void> {
  const row = ({ kind, name, status, bytes, milliseconds }: Cost) =>
    `| ${kind} | ${name} | ${status} | ${bytes.toLocaleString('en')} | ${milliseconds.toFixed(1)} ms |`;
  const sorted = [...costs].sort((one, other) => other.milliseconds - one.milliseconds);
  const head = ['| kind | request | status | bytes | event loop |', '| --- | --- | ---: | ---: | ---: |'];
  console.log([...head, ...sorted.map(row)].join('\n'));
  const kinds = [...new Set(costs.map(({ kind }) => kind))];
  const shown = kinds.flatMap((kind) => sorted.filter((cost) => cost.kind === kind).slice(0, SHOWN));
  const first = costs.slice(0, 1);
  const rows = [...head, ...[...first, ...shown.filter((cost) => cost !== first[0])].map(row)];
  const page = await readFile(DOCUMENT, 'utf8');
  const table = `${machine()}:\n\n${rows.join('\n')}`;
  await writeFile(DOCUMENT, page.replace(/(<!-- costs -->\n).*?(<!-- \/costs -->)/s, `$1\n${table}\n\n$2`));
  const worst = sorted[0]?.milliseconds ?? 0;
  if (worst > TARGET_MS) throw new Error(`the worst takes ${worst.toFixed(1)} ms; at most ${TARGET_MS} are wanted`);
}
