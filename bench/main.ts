/**
 * `make bench`: data of each size, imported; every shape timed; throughput against others; docs/performance.md. It needs
 * a PostgreSQL to itself, at BENCH_DATABASE_URL (a superuser's; databases named bench_… are made there) or embedded.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import postgres from 'postgres';
import { migrateDatabase } from '../src/database.js';
import { openEmbeddedPostgres } from '../src/embeddedPostgres.js';
import { writeNumbers } from './data.js';
import { growTenfold } from './grow.js';
import { type Importing, measureImport } from './importing.js';
import { type Latency, measureLatency, type Target } from './latency.js';
import { writeReport } from './report.js';
import { startServer } from './server.js';
import type { Owners } from './shapes.js';
import { measureThroughput, type Throughput } from './throughput.js';

export interface Results {
  latencies: Record<string, Latency[]>;
  importing: Importing[];
  throughput: Throughput[];
}

/** Above this, numbers are not imported but copied from the size below, ten times over: an import takes half an hour. */
const MOST_IMPORTED = 1_000_000;
const sizes = [100_000, 1_000_000].filter((size) => size <= Number(process.env.BENCH_MOST ?? Number.POSITIVE_INFINITY));
if (Number(process.env.BENCH_NUMBERS) > MOST_IMPORTED) sizes.push(Number(process.env.BENCH_NUMBERS));

await mkdir('.cache', { recursive: true });
const given = process.env.BENCH_DATABASE_URL;
const embedded = given ? undefined : await openEmbeddedPostgres('.cache/bench');
const administrator = given ?? embedded?.url ?? '';
const results: Results = { latencies: {}, importing: [], throughput: [] };
try {
  // All of them before any server, which would hold on to the database that the next is copied from.
  const urls: string[] = [];
  for (const size of sizes) urls.push(await fill(size));
  const targets: Target[] = [];
  for (const [index, size] of sizes.entries()) {
    const url = urls[index] as string;
    await settle(url);
    const environment = { DATABASE_URL: url, RATE_LIMIT_PER_SECOND: '0', LOG_LEVEL: 'silent' };
    const server = await startServer(['dist/src/main.js', 'serve'], 4080 + index, '/readyz', environment);
    const middle = `+1${2_000_000_000 + Math.floor(size / 2) * 7}`;
    targets.push({ size, url, owners: await ownersOf(url), server, middle });
  }
  console.error(`timing the shapes on ${sizes.join(', ')} numbers`);
  results.latencies = await measureLatency(targets);
  await Promise.all(targets.map(({ server }) => server.stop()));
  await keep();
  const loaded = targets.find(({ size }) => size === MOST_IMPORTED);
  if (loaded && process.env.BENCH_THROUGHPUT !== '0') {
    console.error('loading the contenders');
    results.throughput = await measureThroughput(loaded.url);
    await keep();
  }
  await writeReport(results);
} finally {
  await embedded?.close();
}

/** The report can be written anew from it: `npx tsx bench/report.ts`. */
async function keep(): Promise<void> {
  await writeFile(join('.cache', 'bench.json'), JSON.stringify(results));
}

/** Makes a database of `size` numbers, unless an earlier run has left it. */
async function fill(size: number): Promise<string> {
  const name = `bench_${size}`;
  const url = new URL(administrator);
  url.pathname = `/${name}`;
  const admin = postgres(administrator, { max: 1, onnotice: () => {} });
  const [found] = await admin`SELECT FROM pg_database WHERE datname = ${name}`;
  const keeps = found && (process.env.BENCH_KEEP === '1' || size > MOST_IMPORTED);
  if (!keeps) {
    await admin.unsafe(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
    const template = size > MOST_IMPORTED ? ` TEMPLATE bench_${MOST_IMPORTED}` : '';
    await admin.unsafe(`CREATE DATABASE ${name}${template}`);
  }
  await admin.end();
  if (keeps) return url.href;
  const sql = postgres(url.href, { max: 1, onnotice: () => {} });
  if (size > MOST_IMPORTED) {
    console.error(`growing to ${size} numbers`);
    await growTenfold(sql);
  } else {
    const file = join('.cache', `${size}.ndjson`);
    console.error(`making and importing ${size} numbers`);
    await writeNumbers(file, size);
    await migrateDatabase(url.href);
    const environment = { DATABASE_URL: url.href, RATE_LIMIT_PER_SECOND: '0', LOG_LEVEL: 'silent' };
    const server = await startServer(['dist/src/main.js', 'serve'], 4091, '/readyz', environment);
    results.importing.push(await measureImport(url.href, sql, file, server));
    await server.stop();
  }
  await sql.end();
  return url.href;
}

/** As autovacuum would leave it some minutes later. */
async function settle(url: string): Promise<void> {
  const sql = postgres(url, { max: 1 });
  await sql`VACUUM ANALYZE`;
  await sql`CHECKPOINT`;
  await sql.end();
}

/** The profile with the most numbers, and the one with the fewest. */
async function ownersOf(url: string): Promise<Owners> {
  const sql = postgres(url, { max: 1 });
  const profiles =
    await sql`SELECT business_profile_id AS id FROM branded_phone_numbers GROUP BY 1 ORDER BY count(*) DESC`;
  await sql.end();
  return { largeProfile: profiles[0]?.id, rareProfile: profiles.at(-1)?.id };
}
