/**
 * `make bench-compare-commands BEFORE=commit`: runs the operator's commands alternately in this version, also with
 * `--jobs 1`, and in the version of that commit, each in a separate database on one server. Prints the means of all
 * rounds so far after each round. bench/main.ts lists the options.
 */
import { loadavg } from 'node:os';
import { startPostgres } from '../test/support/postgresServer.js';
import type { Server } from '../test/support/serverProcess.js';
import { BESIDE_WRITERS, IMPORTS, measureCommand, writeFiles } from './commands.js';
import { createDatabase, installedVersion, SETTINGS, VERSIONS, vacuum, withConnection } from './database.js';
import { MAIN, mainOf, runCommand, serve } from './program.js';
import { comparisonTable, type VariantResults } from './report.js';
import { measureWriters } from './updates.js';

const { BEFORE_FOLDERS = '', BENCH_MOST = '100000', BENCH_ROUNDS = '2' } = process.env;

interface Variant {
  name: string;
  main: string;
  jobs?: number;
}

const VARIANTS: Variant[] = [
  { name: 'before', main: mainOf(BEFORE_FOLDERS) },
  { name: 'now', main: MAIN },
  { name: 'now, --jobs 1', main: MAIN, jobs: 1 },
];

const files = await writeFiles(Number(BENCH_MOST));
for (const version of VERSIONS) {
  const server = await startPostgres(SETTINGS, installedVersion(version));
  try {
    const rounds: VariantResults[][] = [];
    for (let round = 1; round <= Number(BENCH_ROUNDS); round++) {
      rounds.push(await measureRound(server.url, `${version}, round ${round}`));
      console.log(`PostgreSQL ${version}, ${files.numbers} numbers, ${round} rounds\n\n${comparisonTable(rounds)}\n`);
    }
  } finally {
    await server.remove();
  }
}

async function measureRound(serverUrl: string, title: string): Promise<VariantResults[]> {
  const prepared: { variant: Variant; url: string; server: Server; results: VariantResults }[] = [];
  for (const [index, variant] of VARIANTS.entries()) {
    const url = await createDatabase(serverUrl, `compared_${index}`);
    await runCommand(url, ['migrate'], variant.main);
    const results = { variant: variant.name, runs: [], indexBytes: 0, ratesByWriters: {} };
    prepared.push({ variant, url, server: await serve(url, variant.main), results });
  }
  for (const command of [...IMPORTS, ...BESIDE_WRITERS]) {
    for (const { variant, url, server, results } of prepared) {
      await withConnection(url, (sql) => sql`CHECKPOINT`);
      const load = loadavg()[0]?.toFixed(1);
      const run = await measureCommand(command, files, { ...variant, url, server });
      if (command === IMPORTS[0]) results.indexBytes = await postingIndexBytes(url);
      results.runs.push(run);
      console.error(`${title}, load ${load}, ${variant.name}: ${JSON.stringify(run)}`);
      await vacuum(url);
    }
  }
  const rates = await measureWriters(
    prepared.map(({ url }) => url),
    files.numbers,
  );
  for (const [index, { variant, server, results }] of prepared.entries()) {
    results.ratesByWriters = rates[index] ?? {};
    console.error(`${title}, ${variant.name}: ${JSON.stringify(results.ratesByWriters)}`);
    await server.stop();
  }
  return prepared.map(({ results }) => results);
}

async function postingIndexBytes(url: string): Promise<number> {
  const [size] = await withConnection(url, (sql) => sql`SELECT pg_indexes_size('postings')::float8 AS bytes`);
  return size?.bytes;
}
