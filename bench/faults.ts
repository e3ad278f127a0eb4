/**
 * `make fault-table`: runs the built service under each fault, compares each response with
 * the expected one, and prints a table. `node --import tsx bench/faults.ts word…` runs only the faults whose names contain
 * one of the words.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type postgres from 'postgres';
import { brandedPhoneNumbers, businessProfiles } from '../src/database/schema.js';
import { connectTo } from '../test/support/connection.js';
import { closeDatabase, openDatabase } from '../test/support/database.js';
import { startPostgres } from '../test/support/postgresServer.js';
import { hasRedis, startRedis } from '../test/support/redis.js';
import { SERVE, type Server, startServer } from '../test/support/serverProcess.js';
import { openToxicProxy, type ToxicProxy } from '../test/support/toxicProxy.js';
import { machine, table } from './document.js';
import { type OtherClients, useUpConnections } from './otherClients.js';
import { runCommand } from './program.js';

const PAGE = '/v1/brandedPhoneNumbers?size=5';
const PROFILE = '6513270e-269e-4d37-b2a7-4de452e6b438';
const REQUESTS_PER_SECOND = 50;
/** How many clients send these requests in turn: enough that each stays well below its rate limit. */
const CLIENTS = 30;
/** How long requests are sent before, during and after the fault. */
const BEFORE_MS = 1500;
const FAULT_MS = 4000;
const AFTER_MS = 4000;

interface Fault {
  name: string;
  begin?(): unknown;
  end?(): unknown;
  /** Settings of the service. */
  environment?: Record<string, string>;
}

/** A row of the table. */
type Row = (string | number)[];

const server = await startPostgres({ max_connections: '40' });
await runCommand(server.url, ['migrate']);
await insertNumbers(server.url);
const proxy = await openToxicProxy(server.port);
const redis = hasRedis ? await startRedis() : undefined;
const redisProxy = redis && (await openToxicProxy(redis.port));

const throughProxy = { DATABASE_URL: proxy.through(server.url) };
const proxyFault = faultsOf(proxy, throughProxy);
let otherClients: OtherClients | undefined;

const faults: Fault[] = [
  { name: 'none' },
  { name: 'PostgreSQL is stopped and started', begin: () => server.stop('SIGINT'), end: () => server.start() },
  { name: 'PostgreSQL is killed (-9) and started', begin: () => server.stop('SIGKILL'), end: () => server.start() },
  {
    name: 'connections to PostgreSQL are closed during queries, ten times',
    environment: throughProxy,
    async begin() {
      for (let i = 0; i < 10; i++) {
        closeConnections();
        await sleep(100);
      }
    },
  },
  {
    name: 'connections to PostgreSQL become half-open; new ones work',
    environment: throughProxy,
    begin: () => proxy.forgetConnections(),
  },
  proxyFault('PostgreSQL accepts connections and closes them', 'refusing'),
  proxyFault('PostgreSQL hangs: accepts connections and never responds', 'silent'),
  proxyFault('every response of PostgreSQL takes 400 ms longer', 'slow'),
  lockFault('a lock blocks every query until it times out', 'items'),
  {
    name: 'other clients take all connections to PostgreSQL, including those of the service',
    environment: throughProxy,
    async begin() {
      proxy.behave('refusing');
      otherClients = await useUpConnections(server.url);
      proxy.behave('passing');
    },
    end: () => otherClients?.leave(),
  },
  lockFault('the rate limit rows in PostgreSQL are locked', 'rate_limits'),
  ...redisFaults(),
];

const words = process.argv.slice(2);
const isChosen = (name: string) => words.length === 0 || words.some((word) => name.includes(word));
const rows: Row[] = [];
for (const fault of faults.filter(({ name }) => isChosen(name))) addRow(await measureFault(fault));
const head = ['Fault', 'Requests', 'Wrong responses', 'Other than 200', 'Recovered after'];
console.log(`${machine()}:\n\n${table(head, rows, [0, 3])}`);
await Promise.all([proxy.close(), redisProxy?.close(), redis?.kill()]);
await server.remove();
process.exit();

function closeConnections(): void {
  proxy.behave('refusing');
  proxy.behave('passing');
}

/** Returns a function that makes faults of the proxy; `environment` lets the service connect through the proxy. */
function faultsOf({ behave }: ToxicProxy, environment: Record<string, string>) {
  return (name: string, behaviour: Parameters<ToxicProxy['behave']>[0]): Fault => ({
    name,
    environment,
    begin: () => behave(behaviour),
    end: () => behave('passing'),
  });
}

/** Returns a fault in which another session holds an exclusive lock on the table. */
function lockFault(name: string, lockedTable: string): Fault {
  let session: postgres.Sql | undefined;
  return {
    name,
    async begin() {
      session = connectTo(server.url);
      await session`BEGIN`;
      await session.unsafe(`LOCK ${lockedTable} IN ACCESS EXCLUSIVE MODE`);
    },
    end: () => session?.end({ timeout: 0 }),
  };
}

/** Returns the faults of Redis; none if it is not installed. */
function redisFaults(): Fault[] {
  if (!redis || !redisProxy) return [];
  const environment = { REDIS_URL: redisProxy.through(redis.url) };
  const proxyFault = faultsOf(redisProxy, environment);
  const limitMemory = (bytes: string) => () => redis.configure('maxmemory', bytes);
  return [
    proxyFault('Redis refuses connections', 'refusing'),
    proxyFault('Redis hangs', 'silent'),
    proxyFault('every response of Redis takes 400 ms longer', 'slow'),
    { name: 'Redis is killed (-9) and comes back empty', environment, begin: redis.kill, end: redis.start },
    { name: 'the memory of Redis is full', environment, begin: limitMemory('1'), end: limitMemory('0') },
  ];
}

function addRow(row: Row): void {
  rows.push(row);
  console.log(row.join(' | '));
}

/** Runs the service under the fault. Returns the row of the table. */
async function measureFault({ name, begin, end, environment = {} }: Fault): Promise<Row> {
  const service = await serve(environment);
  const expected = await (await fetch(service.url + PAGE)).text();
  const outcomes: { kind: string; time: number }[] = [];
  let wrong = 0;
  const request = async (client: number) => {
    let kind: string;
    try {
      const response = await fetch(service.url + PAGE, { headers: { 'X-Forwarded-For': `203.0.113.${client}` } });
      const body = await response.text();
      const isCorrect = response.status === 200 ? body === expected : [429, 503].includes(response.status);
      if (!isCorrect) wrong++;
      kind = response.status === 200 ? '200' : `${response.status} ${JSON.parse(body).detail}`;
    } catch (error) {
      wrong++;
      kind = String(error);
    }
    outcomes.push({ kind: kind.replace(/ Try again.*/, ''), time: performance.now() });
  };
  const requests: Promise<void>[] = [];
  const timer = setInterval(() => requests.push(request(requests.length % CLIENTS)), 1000 / REQUESTS_PER_SECOND);
  await sleep(BEFORE_MS);
  await begin?.();
  await sleep(FAULT_MS);
  await end?.();
  const endTime = performance.now();
  await sleep(AFTER_MS);
  clearInterval(timer);
  await Promise.all(requests);
  await service.stop();
  const failures = outcomes.filter(({ kind }) => kind !== '200');
  const recoveryMs = Math.max(0, ...failures.map(({ time }) => time - endTime));
  const kinds = [...new Set(failures.map(({ kind }) => kind))].sort();
  const counts = kinds.map((kind) => `${failures.filter((failure) => failure.kind === kind).length} × ${kind}`);
  return [name, requests.length, wrong, counts.join('<br>') || '–', inSeconds(recoveryMs)];
}

function serve(environment: Record<string, string> = {}): Promise<Server> {
  const settings = { DATABASE_URL: server.url, TRUST_PROXY: '1', DRAIN_SECONDS: '0' };
  return startServer(SERVE, { ...settings, ...environment });
}

async function insertNumbers(url: string): Promise<void> {
  const database = openDatabase(url);
  await database.insert(businessProfiles).values({ id: PROFILE, businessName: 'Circle Bank', status: 'approved' });
  await database
    .insert(brandedPhoneNumbers)
    .values(Array.from({ length: 50 }, (_, i) => ({ phoneNumber: `+1415555${1000 + i}`, businessProfileId: PROFILE })));
  await closeDatabase(database);
}

function inSeconds(milliseconds: number): string {
  return `${(milliseconds / 1000).toFixed(1)} s`;
}
