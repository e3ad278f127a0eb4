/**
 * `make bench`: on each PostgreSQL, imports numbers at each size, times named shapes and random filters, and measures the
 * throughput beside other servers' and single changes, and does what operators do at the largest size; then writes
 * docs/performance.md, and .cache/bench/shapes.md with all shapes, from all results in .cache/bench.
 *
 *     make bench                                           the oldest and the newest version, embedded, data thrown away
 *     BENCH_DATABASE_URL='postgres://… postgres://…' make bench    on these servers (a superuser's; on this machine)
 *     BENCH_KEEP=1 make bench                              with what the last run measured of the commands; on servers
 *                                                          of yours, also with its data and what it measured of imports
 *     BENCH_NUMBERS=10000000 BENCH_DATABASE_URL=… make bench       ten million as well, grown once and kept; 25 GB of disk
 *     BENCH_ONLY=pages make bench                          only imports and pages
 *     BENCH_ONLY=commands make bench                       only what operators do
 *     BENCH_MOST=100000 make bench                         only to try it
 *     npx tsx bench/report.ts                              only the report
 *
 * Databases named bench_… are made there. A version takes 20 to 30 minutes on a machine without other work, more than half
 * of it for the commands.
 */
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import postgres from 'postgres';
import { migrateDatabase } from '../src/database/migrations.js';
import { migrationsFolder, packageFolder } from '../src/packageFolder.js';
import { writeNumbers } from '../test/support/generatedNumbers.js';
import { type Server, startServer } from '../test/support/measuredServer.js';
import type { Profiles } from '../test/support/namedFilters.js';
import { operate } from '../test/support/operating.js';
import { startPostgres } from '../test/support/postgresServer.js';
import { measureCompression } from './compression.js';
import { growTenfold } from './grow.js';
import { type Importing, measureImport } from './importing.js';
import { measureLatencies, type Target } from './latency.js';
import { machine, RESULTS, type Results, type TableSize, writeReport } from './report.js';
import { measureThroughput } from './throughput.js';
import { measureChanges } from './updates.js';

/** Only imports and `pages`, or `commands`. */
const ONLY = process.env.BENCH_ONLY;
const KEEPS = process.env.BENCH_KEEP === '1';
/** Above this, numbers are not imported but copied from the size below, ten times over: an import takes half an hour. */
const MAX_IMPORTED = 1_000_000;
const imported = [100_000, MAX_IMPORTED].filter((size) => size <= Number(process.env.BENCH_MOST ?? MAX_IMPORTED));
const isGrown = Number(process.env.BENCH_NUMBERS) > MAX_IMPORTED;
const SIZES = isGrown ? [...imported, 10 * MAX_IMPORTED] : imported;
/** This share of the numbers is then imported again, with changed contents. */
const CHANGED = 0.1;
const CHANGED_SEED = 7;
const SERVICE = ['dist/src/main.js', 'serve'];
const SETTINGS = { shared_buffers: '1GB', max_wal_size: '4GB', maintenance_work_mem: '256MB' };

await mkdir(RESULTS, { recursive: true });
const given = process.env.BENCH_DATABASE_URL?.split(/\s+/).filter(Boolean);
if (given) {
  for (const url of given) await benchServer(url);
} else {
  for (const version of (process.env.BENCH_POSTGRES_VERSIONS ?? '').split(/\s+/).filter(Boolean)) {
    const server = await startPostgres(SETTINGS, join(packageFolder, '.cache', 'postgres', version, 'package.json'));
    await benchServer(server.url).finally(() => server.remove());
  }
}
await writeReport();

async function benchServer(administrator: string): Promise<void> {
  const admin = postgres(administrator, { max: 1, onnotice: () => {} });
  const [running] = await admin`SELECT split_part(current_setting('server_version'), ' ', 1) AS version`;
  const version = running?.version as string;
  const file = join(RESULTS, `${version}.json`);
  const earlier = await readFile(file, 'utf8').then(JSON.parse, () => undefined);
  const results: Results = {
    ...{ latencies: [], importing: {}, throughput: [], loaded: 0, ...earlier },
    ...{ version, machine: machine() },
  };
  const keep = () => writeFile(file, JSON.stringify(results));
  const progress = (step: string) => console.error(`${new Date().toISOString().slice(11, 19)} ${version}: ${step}`);

  if (ONLY !== 'pages' && !(KEEPS && results.operations)) {
    progress('doing what operators do');
    results.operations = await operateOn(admin, administrator);
    await keep();
  }
  if (ONLY === 'commands') return void (await admin.end());

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
      results.importing[size] = await fill(url, size);
      await keep();
    }
    // As autovacuum would leave it a few minutes later.
    await using(url, (sql) => sql`VACUUM ANALYZE`);
  }
  results.sizes = {};
  for (const size of SIZES) results.sizes[size] = await using(databaseOf(administrator, size), sizesOf);
  await admin`CHECKPOINT`;

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

  results.loaded = imported.at(-1) as number;
  progress('loading the contenders');
  results.throughput = await measureThroughput(databaseOf(administrator, results.loaded));
  await keep();
  progress('loading compressed pages');
  results.compression = await measureCompression(databaseOf(administrator, results.loaded));
  await keep();

  progress('changing single entries');
  await admin.unsafe('DROP DATABASE IF EXISTS bench_changes WITH (FORCE)');
  await admin.unsafe(`CREATE DATABASE bench_changes TEMPLATE bench_${results.loaded}`);
  const copy = databaseOf(administrator, 'changes');
  results.changes = await using(copy, (sql) => measureChanges(copy, sql, results.loaded));
  await admin.unsafe('DROP DATABASE bench_changes WITH (FORCE)');
  await keep();
  await admin.end();
}

async function operateOn(admin: postgres.Sql, administrator: string): Promise<Results['operations']> {
  const numbers = imported.at(-1) as number;
  const folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-bench-'));
  const names = ['bench_operated', 'bench_restored'];
  const urls = ['operated', 'restored'].map((name) => databaseOf(administrator, name)) as [string, string];
  for (const name of names) await admin.unsafe(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
  for (const name of names) await admin.unsafe(`CREATE DATABASE ${name}`);
  for (const url of urls) await migrateDatabase(url, migrationsFolder);
  const all = await operate(...urls, numbers, folder);
  for (const name of names) await admin.unsafe(`DROP DATABASE ${name} WITH (FORCE)`);
  await rm(folder, { recursive: true });
  return { numbers, all };
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
  return startServer(SERVICE, '/readyz', { DATABASE_URL: url, RATE_LIMIT_PER_SECOND: '0', LOG_LEVEL: 'silent' });
}

async function fill(url: string, size: number): Promise<Importing> {
  const file = join('.cache', `${size}.ndjson`);
  const changes = { file: join('.cache', `${size}.changes.ndjson`), numbers: size * CHANGED };
  await writeNumbers(file, size);
  await writeNumbers(changes.file, changes.numbers, CHANGED_SEED);
  await migrateDatabase(url, migrationsFolder);
  const server = await serve(url);
  const measured = await using(url, (sql) => measureImport(url, sql, { file, changes }, server));
  await server.stop();
  return measured;
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
