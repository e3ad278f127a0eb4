/**
 * `make bench-compare BEFORE=folder`: compares the throughput of first pages of this version, the version built in that folder,
 * and a bare server, on the same numbers. Prints a table for each of three baselines: the bare server, and the other version
 * with and without its rate limit. bench/main.ts lists the options.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { writeNumbers } from '../test/support/generatedNumbers.js';
import { startPostgres } from '../test/support/postgresServer.js';
import { createDatabase, installedVersion, VERSIONS, vacuum } from './database.js';
import { MAIN, mainOf, RESULTS, runCommand } from './program.js';
import { throughputTable } from './report.js';
import { BARE, measureThroughput, OURS, OURS_UNLIMITED } from './throughput.js';

const NUMBERS = 20_000;
const [version = ''] = VERSIONS;
const mainBefore = mainOf(process.env.BEFORE ?? '');

const file = join(RESULTS, 'compare.ndjson');
await writeNumbers(file, NUMBERS);
const server = await startPostgres({}, installedVersion(version));
try {
  const url = await fill('now', MAIN);
  const urlBefore = await fill('before', mainBefore);
  const now = [OURS, OURS_UNLIMITED].map((contender) => ({ ...contender, canMix: false }));
  const before = now.map((contender) => ({
    ...contender,
    name: `${contender.name}, before`,
    command: [mainBefore, 'serve'],
    environment: { ...contender.environment, DATABASE_URL: urlBefore },
  }));
  const throughput = await measureThroughput(url, [BARE, ...now, ...before]);
  for (const { name } of [BARE, ...before]) console.log(`${throughputTable([{ version, throughput }], name)}\n`);
} finally {
  await server.remove();
  await rm(file);
}

/** Creates a database, and imports the numbers with the program `main`. Returns the database's URL. */
async function fill(name: string, main: string): Promise<string> {
  const url = await createDatabase(server.url, name);
  await runCommand(url, ['migrate'], main);
  await runCommand(url, ['import', file], main);
  await vacuum(url);
  return url;
}
