/**
 * Fills the fault table of docs/operations.md: the built service under each fault, with a steady load of many clients
 * whose every response is compared with the right one; and under ten times its capacity. `make fault-table`. With words as
 * arguments, only the faults whose names contain one of them are tried, and printed but not written.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type postgres from 'postgres';
import { closeDatabase, openDatabase } from '../src/database/connect.js';
import { migrateDatabase } from '../src/database/migrations.js';
import { brandedPhoneNumbers, businessProfiles } from '../src/database/schema.js';
import { migrationsFolder, packageFolder } from '../src/packageFolder.js';
import { connectTo } from '../test/support/connection.js';
import { listeningUrl } from '../test/support/listeningUrl.js';
import { type OtherClients, useUpConnections } from '../test/support/otherClients.js';
import { startPostgres } from '../test/support/postgresServer.js';
import { hasRedis, startRedis } from '../test/support/redis.js';
import { openToxicProxy } from '../test/support/toxicProxy.js';
import { type Overload, overload } from './overload.js';

const PAGE = '/v1/brandedPhoneNumbers?size=5';
const PROFILE = '6513270e-269e-4d37-b2a7-4de452e6b438';
/** Requests a second, and milliseconds before, in and after the fault. */
const RATE = 50;
const BEFORE = 1500;
const IN = 4000;
const AFTER = 4000;
/** Seconds of the overload. */
const FLOOD = 60;

interface Fault {
  name: string;
  begin(): unknown;
  end(): unknown;
  environment?: Record<string, string>;
}

const server = await startPostgres({ max_connections: '40' });
await migrateDatabase(server.url, migrationsFolder);
await fill(server.url);
const proxy = await openToxicProxy(server.port);
const redis = hasRedis ? await startRedis() : undefined;
const redisProxy = redis && (await openToxicProxy(redis.port));

const throughProxy = { DATABASE_URL: proxy.through(server.url) };
const behave = (behaviour: Parameters<typeof proxy.behave>[0]) => () => proxy.behave(behaviour);
const pass = behave('passing');

let holder: postgres.Sql | undefined;
const hold = (statement: string) => async () => {
  holder = connectTo(server.url);
  await holder`BEGIN`;
  await holder.unsafe(statement);
};
const release = () => holder?.end({ timeout: 0 });
let others: OtherClients | undefined;

const faults: Fault[] = [
  { name: 'none', begin() {}, end() {} },
  { name: 'PostgreSQL is stopped and started', begin: () => server.stop('SIGINT'), end: () => server.start() },
  { name: 'PostgreSQL is killed (-9) and started', begin: () => server.stop('SIGKILL'), end: () => server.start() },
  {
    name: 'its connections are cut in mid-query, ten times',
    environment: throughProxy,
    async begin() {
      for (let i = 0; i < 10; i++) {
        proxy.behave('refusing');
        pass();
        await sleep(100);
      }
    },
    end() {},
  },
  {
    name: 'its connections are half-open, new ones pass',
    environment: throughProxy,
    begin: () => proxy.forgetConnections(),
    end() {},
  },
  { name: 'it accepts connections and closes them', environment: throughProxy, begin: behave('refusing'), end: pass },
  { name: 'it hangs: accepts and never responds', environment: throughProxy, begin: behave('silent'), end: pass },
  { name: 'every response takes 400 ms longer', environment: throughProxy, begin: behave('slow'), end: pass },
  {
    name: 'a lock holds every statement beyond its deadline',
    begin: hold('LOCK items IN ACCESS EXCLUSIVE MODE'),
    end: release,
  },
  {
    name: 'others take all its connections, and those of the service are cut',
    environment: throughProxy,
    async begin() {
      proxy.behave('refusing');
      others = await useUpConnections(server.url);
      pass();
    },
    end: () => others?.leave(),
  },
  {
    name: 'the limit’s rows in PostgreSQL are locked',
    begin: hold('LOCK rate_limits IN ACCESS EXCLUSIVE MODE'),
    end: release,
  },
];
if (redis && redisProxy) {
  const environment = { REDIS_URL: redisProxy.through(redis.url) };
  const redisPass = () => redisProxy.behave('passing');
  faults.push(
    { name: 'Redis refuses connections', environment, begin: () => redisProxy.behave('refusing'), end: redisPass },
    { name: 'Redis hangs', environment, begin: () => redisProxy.behave('silent'), end: redisPass },
    {
      name: 'every response of Redis takes 400 ms longer',
      environment,
      begin: () => redisProxy.behave('slow'),
      end: redisPass,
    },
    {
      name: 'Redis is killed (-9) and comes back empty',
      environment,
      begin: () => redis.kill(),
      end: () => redis.start(),
    },
    {
      name: 'the memory of Redis is full',
      environment,
      begin: () => redis.configure('maxmemory', '1'),
      end: () => redis.configure('maxmemory', '0'),
    },
  );
}

const words = process.argv.slice(2);
const isChosen = (name: string) => words.length === 0 || words.some((word) => name.includes(word));
const rows: string[] = [];
const report = (row: string) => {
  rows.push(row);
  console.log(row);
};
for (const fault of faults) if (isChosen(fault.name)) report(await measured(fault));
const OVERLOAD = `10 × the capacity for ${FLOOD} s`;
const notes: string[] = [];
if (isChosen(OVERLOAD)) {
  const { row, note } = await overloaded();
  report(row);
  notes.push(note);
  console.log(note);
}
if (words.length === 0) write(rows, notes);
await Promise.all([proxy.close(), redisProxy?.close(), redis?.kill()]);
await server.remove();
process.exit();

async function measured({ name, begin, end, environment = {} }: Fault): Promise<string> {
  const service = await serve({ DATABASE_URL: server.url, ...environment });
  const expected = await (await fetch(`${service.url}${PAGE}`)).text();
  const outcomes: { status: number | string; came: number }[] = [];
  let wrong = 0;
  let sent = 0;
  const pending: Promise<void>[] = [];
  // Thirty clients, none of which comes near its limit.
  const ask = async (client: number) => {
    try {
      const response = await fetch(`${service.url}${PAGE}`, {
        headers: { 'X-Forwarded-For': `203.0.113.${client}` },
      });
      const body = await response.text();
      const isRight = response.status === 200 ? body === expected : [429, 503].includes(response.status);
      if (!isRight) wrong++;
      const kind = response.status === 200 ? 200 : `${response.status} ${JSON.parse(body).detail}`;
      outcomes.push({ status: kind, came: performance.now() });
    } catch (error) {
      wrong++;
      outcomes.push({ status: String(error), came: performance.now() });
    }
  };
  const load = setInterval(() => pending.push(ask(sent++ % 30)), 1000 / RATE);
  await sleep(BEFORE);
  await begin();
  await sleep(IN);
  await end();
  const over = performance.now();
  await sleep(AFTER);
  clearInterval(load);
  await Promise.all(pending);
  const bad = outcomes.filter(({ status }) => status !== 200);
  const late = bad.filter(({ came }) => came > over).map(({ came }) => came - over);
  const kinds = new Map<string, number>();
  for (const { status } of bad) {
    const kind = String(status).replace(/ Try again.*/, '');
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
  }
  await service.stop();
  const others = [...kinds].sort().map(([kind, count]) => `${count} × ${kind}`);
  return `| ${name} | ${sent} | ${wrong} | ${others.join('<br>') || '–'} | ${(Math.max(0, ...late) / 1000).toFixed(1)} s |`;
}

async function serve(environment: Record<string, string>) {
  const child = spawn(process.execPath, ['dist/src/main.js', 'serve'], {
    cwd: packageFolder,
    env: { ...process.env, PORT: '0', TRUST_PROXY: '1', DRAIN_SECONDS: '0', ...environment },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const url = await listeningUrl(child.stdout);
  const stop = async () => {
    const gone = once(child, 'exit');
    child.kill('SIGTERM');
    await gone;
  };
  return { url, pid: child.pid ?? 0, stop };
}

/** Resident memory in megabytes. */
function memoryOf(pid: number): number {
  return Math.round(Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024);
}

async function fill(url: string): Promise<void> {
  const database = openDatabase(url);
  await database.insert(businessProfiles).values({ id: PROFILE, businessName: 'Circle Bank', status: 'approved' });
  await database
    .insert(brandedPhoneNumbers)
    .values(Array.from({ length: 50 }, (_, i) => ({ phoneNumber: `+1415555${1000 + i}`, businessProfileId: PROFILE })));
  await closeDatabase(database);
}

/** What the flood costs, and how the modest clients fare beside it. */
async function overloaded(): Promise<{ row: string; note: string }> {
  const service = await serve({ DATABASE_URL: server.url });
  const before = memoryOf(service.pid);
  const load: Overload = await overload(service.url, PAGE, FLOOD);
  const after = memoryOf(service.pid);
  await service.stop();
  const { statuses, sent, lost } = load.flooded;
  const kinds = Object.entries(statuses).filter(([status]) => status !== '200');
  const others = [...kinds.map(([status, count]) => `${count} × ${status}`), ...(lost > 0 ? [`${lost} × none`] : [])];
  const [perSecond, under] = [load.capacity, (statuses[200] ?? 0) / FLOOD].map(Math.round);
  const percent = (count: number) => `${Math.floor((100 * count) / load.asked)} %`;
  return {
    row: `| ${OVERLOAD} | ${sent} | ${load.flooded.wrong + load.wrong} | ${others.join('<br>')} | ${(load.recovered / 1000).toFixed(1)} s |`,
    note:
      `Under 10 × the capacity, from ${load.connections} connections and as many addresses as requests, ${under} requests a ` +
      `second were served, ${perSecond} without the flood. Of ${load.asked} requests of clients that send few, ` +
      `${percent(load.atOnce)} were served at once and ${percent(load.inTime)} within 5 s, retrying after ` +
      `\`Retry-After\`. The slowest \`/healthz\`, each on a new connection, took ${(load.slowestHealth / 1000).toFixed(1)} s. Memory: ${before} → ${after} MB.`,
  };
}

function write(lines: string[], notes: string[]): void {
  const file = join(packageFolder, 'docs', 'operations.md');
  const machine = `${new Date().toISOString().slice(0, 10)}, ${cpus().length} × ${cpus()[0]?.model.trim()}, Node ${process.version}:`;
  const header = `| Fault | Requests | Wrong responses | Other than 200 | Recovered after |
|---|---:|---:|---|---:|`;
  const table = [machine, '', header, ...lines, '', ...notes].join('\n');
  const text = readFileSync(file, 'utf8');
  writeFileSync(
    file,
    text.replace(/(<!-- faults -->)[\s\S]*(<!-- \/faults -->)/, (_all, begin, end) => `${begin}\n${table}\n${end}`),
  );
}
