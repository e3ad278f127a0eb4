/**
 * `make bench-compare-commands BEFORE=folder`: the commands of operators beside those of another version, which was built in
 * that folder, in turns: each version has a database of its own on the same server. Prints the medians of all rounds.
 *
 *     BENCH_MOST=1000000    instead of 100,000 numbers
 *     BENCH_ROUNDS=1        instead of 2
 *     BENCH_POSTGRES_VERSIONS=18.4.0-beta.17    instead of the oldest and the newest
 */
import { execFileSync } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { loadavg } from 'node:os';
import { join, resolve } from 'node:path';
import postgres from 'postgres';
import { packageFolder } from '../src/packageFolder.js';
import { type Server, startServer } from '../test/support/measuredServer.js';
import { type PostgresServer, startPostgres } from '../test/support/postgresServer.js';
import { CHANGING, FILLING, type Files, measureCommand, SETTINGS, writeFiles } from './commands.js';
import { type Compared, comparedTable, RESULTS } from './report.js';
import { measureWriters } from './updates.js';

const { BEFORE = '', BENCH_POSTGRES_VERSIONS = '', BENCH_MOST = '100000', BENCH_ROUNDS = '2' } = process.env;

interface Variant {
  name: string;
  main: string;
  jobs?: number;
}

const VARIANTS: Variant[] = [
  { name: 'before', main: join(resolve(BEFORE), 'dist/src/main.js') },
  { name: 'now', main: join(packageFolder, 'dist/src/main.js') },
  { name: 'now, --jobs 1', main: join(packageFolder, 'dist/src/main.js'), jobs: 1 },
];

await mkdir(RESULTS, { recursive: true });
const files = await writeFiles(Number(BENCH_MOST));
for (const version of BENCH_POSTGRES_VERSIONS.split(/\s+/).filter(Boolean)) {
  const server = await startPostgres(SETTINGS, join(packageFolder, '.cache', 'postgres', version, 'package.json'));
  try {
    const rounds: Compared[][] = [];
    for (let round = 1; round <= Number(BENCH_ROUNDS); round++) {
      rounds.push(await compare(server, files, `${version}, round ${round}`));
      console.log(`PostgreSQL ${version}, ${files.numbers} numbers, ${round} rounds\n\n${comparedTable(rounds)}\n`);
    }
  } finally {
    await server.remove();
  }
}

/** One round. */
async function compare(server: PostgresServer, files: Files, title: string): Promise<Compared[]> {
  const admin = postgres(server.url, { max: 1, onnotice: () => {} });
  const prepared: (Variant & { url: string; server: Server; sql: postgres.Sql; compared: Compared })[] = [];
  for (const [index, variant] of VARIANTS.entries()) {
    await admin.unsafe(`DROP DATABASE IF EXISTS compared_${index} WITH (FORCE)`);
    await admin.unsafe(`CREATE DATABASE compared_${index}`);
    const { href: url } = new URL(`/compared_${index}`, server.url);
    execFileSync(process.execPath, [variant.main, 'migrate'], {
      env: { ...process.env, DATABASE_URL: url },
      stdio: 'ignore',
    });
    const environment = { DATABASE_URL: url, RATE_LIMIT_PER_SECOND: '0', LOG_LEVEL: 'silent' };
    prepared.push({
      ...{ ...variant, url, server: await startServer([variant.main, 'serve'], '/readyz', environment) },
      sql: postgres(url, { max: 1, onnotice: () => {} }),
      compared: { variant: variant.name, operations: [], indexes: 0, writers: {} },
    });
  }
  for (const command of [...FILLING, ...CHANGING]) {
    for (const { sql, compared, ...variant } of prepared) {
      await admin`CHECKPOINT`;
      const load = loadavg()[0]?.toFixed(1);
      const operation = await measureCommand(command, files, variant);
      if (command === FILLING[0]) {
        const [size] = await sql`SELECT pg_indexes_size('postings')::float8 AS bytes`;
        compared.indexes = size?.bytes;
      }
      compared.operations.push(operation);
      console.error(`${title}, load ${load}, ${variant.name}: ${JSON.stringify(operation)}`);
      // As autovacuum would leave it a few minutes later.
      await sql`VACUUM ANALYZE`;
    }
  }
  const urls = prepared.map(({ url }) => url);
  const writers = await measureWriters(urls, files.numbers);
  for (const [index, { sql, server, compared }] of prepared.entries()) {
    compared.writers = writers?.[index] ?? {};
    console.error(`${title}, ${compared.variant}: ${JSON.stringify(compared.writers)}`);
    await sql.end();
    await server.stop();
  }
  await admin.end();
  return prepared.map(({ compared }) => compared);
}
