/**
 * `make bench`: on each PostgreSQL, imports numbers at each size, times named shapes and random filters, and measures the
 * throughput beside other servers', single changes, and commands beside writers at the largest size; then writes
 * docs/performance.md, and .cache/bench/shapes.md with all shapes, from all results in .cache/bench.
 *
 *     make bench                                           the oldest and the newest version, embedded, data thrown away
 *     BENCH_DATABASE_URL='postgres://… postgres://…' make bench    on these servers (a superuser's; on this machine)
 *     BENCH_KEEP=1 make bench                              on servers of yours: with the data of the last run, and what
 *                                                          it measured of commands
 *     BENCH_NUMBERS=10000000 BENCH_DATABASE_URL=… make bench       ten million as well, grown once and kept; 25 GB of disk
 *     BENCH_ONLY=pages make bench                          only imports and pages
 *     BENCH_ONLY=commands make bench                       only commands
 *     BENCH_ONLY=replica make bench                        only an import into a server with a replica, embedded
 *     BENCH_MOST=100000 make bench                         only to try it
 *     npx tsx bench/report.ts                              only the report
 *
 * Databases named bench_… are made there. A version takes 20 to 30 minutes on a machine without other work, more than half
 * of it for the commands. `make bench-compare-commands` compares them with another version of the program.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import postgres from 'postgres';
import { migrateDatabase } from '../src/database/migrations.js';
import { migrationsFolder, packageFolder } from '../src/packageFolder.js';
import { type Server, startServer } from '../test/support/measuredServer.js';
import type { Profiles } from '../test/support/namedFilters.js';
import { type PostgresServer, startPostgres, startReplica } from '../test/support/postgresServer.js';
import { CHANGING, copyAgain, FILLING, measureCommand, type Operation, SETTINGS, writeFiles } from './commands.js';
import { measureCompression } from './compression.js';
import { growTenfold } from './grow.js';
import { measureLatencies, type Target } from './latency.js';
import { measureReplica } from './replica.js';
import { machine, RESULTS, type Results, type TableSize, writeReport } from './report.js';
import { measureThroughput } from './throughput.js';
import { measureChanges } from './updates.js';

/** Only imports and `pages`, `commands`, or the `replica`. */
const ONLY = process.env.BENCH_ONLY;
const KEEPS = process.env.BENCH_KEEP === '1';
/** Above this, numbers are not imported but copied from the size below, ten times over: an import takes half an hour. */
const MAX_IMPORTED = 1_000_000;
const imported = [100_000, MAX_IMPORTED].filter((size) => size <= Number(process.env.BENCH_MOST ?? MAX_IMPORTED));
const isGrown = Number(process.env.BENCH_NUMBERS) > MAX_IMPORTED;
const SIZES = isGrown ? [...imported, 10 * MAX_IMPORTED] : imported;
const MAIN = 'dist/src/main.js';

await mkdir(RESULTS, { recursive: true });
const given = process.env.BENCH_DATABASE_URL?.split(/\s+/).filter(Boolean);
if (given) {
  for (const url of given) await benchServer(url);
} else {
  for (const version of (process.env.BENCH_POSTGRES_VERSIONS ?? '').split(/\s+/).filter(Boolean)) {
    const programs = join(packageFolder, '.cache', 'postgres', version, 'package.json');
    const server = await startPostgres(SETTINGS, programs);
    await benchServer(server.url, () => startReplica(server, programs)).finally(() => server.remove());
  }
}
await writeReport();

async function benchServer(administrator: string, replicate?: () => Promise<PostgresServer>): Promise<void> {
  const admin = postgres(administrator, { max: 1, onnotice: () => {} });
  const [running] = await admin`SELECT split_part(current_setting('server_version'), ' ', 1) AS version`;
  const version = running?.version as string;
  const file = join(RESULTS, `${version}.json`);
  const earlier = await readFile(file, 'utf8').then(JSON.parse, () => undefined);
  const results: Results = {
    ...{ latencies: [], commands: {}, copySeconds: {}, throughput: [], loaded: 0, ...earlier },
    ...{ version, machine: machine() },
  };
  const keep = () => writeFile(file, JSON.stringify(results));
  const progress = (step: string) => console.error(`${new Date().toISOString().slice(11, 19)} ${version}: ${step}`);

  if (ONLY === 'replica') {
    const numbers = imported.at(-1) as number;
    progress(`importing ${numbers} numbers beside a replica`);
    if (replicate) results.replica = { numbers, ...(await measureReplica(administrator, replicate, numbers)) };
    await keep();
    return void (await admin.end());
  }

  // All databases before any server: PostgreSQL can't copy a database that something is connected to.
  for (const size of SIZES) {
    const url = databaseOf(administrator, size);
    const [found] = await admin`SELECT FROM pg_database WHERE datname = ${`bench_${size}`}`;
    if (found && (KEEPS || size > MAX_IMPORTED)) continue;
    await admin.unsafe(`DROP DATABASE IF EXISTS bench_${size} WITH (FORCE)`);
    if (size > MAX_IMPORTED) {
      progress(`growing to ${size} numbers`);
      await admin.unsafe(`CREATE DATABASE bench_${size} TEMPLATE bench_${MAX_IMPORTED}`);
      await using(url, growTenfold);
    } else {
      progress(`importing ${size} numbers`);
      await admin.unsafe(`CREATE DATABASE bench_${size}`);
      await migrateDatabase(url, migrationsFolder);
      results.commands[size] = await operateOn(url, size, FILLING);
      results.copySeconds[size] = await using(url, copyAgain);
      await keep();
    }
    // As autovacuum would leave it a few minutes later.
    await using(url, (sql) => sql`VACUUM ANALYZE`);
  }
  results.sizes = {};
  for (const size of SIZES) results.sizes[size] = await using(databaseOf(administrator, size), sizesOf);
  await admin`CHECKPOINT`;

  results.loaded = imported.at(-1) as number;
  const filled = results.commands[results.loaded] ?? [];
  if (ONLY !== 'pages' && filled.length <= FILLING.length) {
    progress('running commands beside writers');
    const changed = await onCopy(admin, administrator, results.loaded, (url) =>
      operateOn(url, results.loaded, CHANGING),
    );
    results.commands[results.loaded] = [...filled, ...changed];
    await keep();
  }
  if (ONLY === 'commands') return void (await admin.end());

  progress('timing shapes and random filters');
  const targets: Target[] = [];
  for (const size of SIZES) {
    const url = databaseOf(administrator, size);
    targets.push({ size, url, profiles: await profilesOf(url), server: await serve(url) });
  }
  results.latencies = await measureLatencies(targets);
  await Promise.all(targets.map(({ server }) => server.stop()));
  await keep();
  if (ONLY === 'pages') return void (await admin.end());

  progress('loading the contenders');
  results.throughput = await measureThroughput(databaseOf(administrator, results.loaded));
  await keep();
  progress('loading compressed pages');
  results.compression = await measureCompression(databaseOf(administrator, results.loaded));
  await keep();

  progress('changing single entries');
  results.changes = await onCopy(admin, administrator, results.loaded, (url) =>
    using(url, (sql) => measureChanges(url, sql, results.loaded)),
  );
  await keep();
  await admin.end();
}

/** Works on a copy of the database of this size, which is thrown away. */
async function onCopy<T>(
  admin: postgres.Sql,
  administrator: string,
  size: number,
  work: (url: string) => Promise<T>,
): Promise<T> {
  await admin.unsafe('DROP DATABASE IF EXISTS bench_copy WITH (FORCE)');
  await admin.unsafe(`CREATE DATABASE bench_copy TEMPLATE bench_${size}`);
  const result = await work(databaseOf(administrator, 'copy'));
  await admin.unsafe('DROP DATABASE bench_copy WITH (FORCE)');
  return result;
}

/** Runs the commands on a database, which is served meanwhile. */
async function operateOn(url: string, size: number, commands: typeof FILLING): Promise<Operation[]> {
  const files = await writeFiles(size);
  const server = await serve(url);
  const operations = [];
  for (const command of commands) operations.push(await measureCommand(command, files, { main: MAIN, url, server }));
  await server.stop();
  return operations;
}

function databaseOf(administrator: string, name: number | string): string {
  const url = new URL(administrator);
  url.pathname = `/bench_${name}`;
  return url.href;
}

async function using<T>(url: string, work: (sql: postgres.Sql) => PromiseLike<T>): Promise<T> {
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  try {
    return await work(sql);
  } finally {
    await sql.end();
  }
}

function serve(url: string): Promise<Server> {
  return startServer([MAIN, 'serve'], '/readyz', {
    DATABASE_URL: url,
    RATE_LIMIT_PER_SECOND: '0',
    LOG_LEVEL: 'silent',
  });
}

/** The tables that grow with the numbers; those that were emptied for a grown database are left out. */
async function sizesOf(sql: postgres.Sql): Promise<TableSize[]> {
  return sql<TableSize[]>`
    SELECT relname AS table, pg_table_size(oid)::float8 AS rows, pg_indexes_size(oid)::float8 AS indexes
    FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND reltuples > 50000
    ORDER BY 1`;
}

/** The profile with the most numbers, and the one with the fewest. */
async function profilesOf(url: string): Promise<Profiles> {
  const profiles = await using(
    url,
    (sql) => sql`SELECT business_profile_id AS id FROM items GROUP BY 1 ORDER BY count(*) DESC`,
  );
  return { largeProfile: profiles[0]?.id, rareProfile: profiles.at(-1)?.id };
}
