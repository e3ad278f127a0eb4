/**
 * `make bench-compare BEFORE=folder`: first pages per second of this version, of the version that was built in that folder,
 * and of a bare server; each version has imported the same numbers. Prints one table for each rate that serves as the unit:
 * the bare server's, and the other version's with and without its limit; and the time of a page if PostgreSQL and Redis are
 * 1 ms away. bench/main.ts lists the options.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { writeNumbers } from '../test/support/generatedNumbers.js';
import { startPostgres } from '../test/support/postgresServer.js';
import { createDatabase, installedVersion, VERSIONS, vacuum } from './database.js';
import { MAIN, mainOf, RESULTS, runCommand } from './program.js';
import { compareWithRemoteStores } from './remoteStores.js';
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
  for (const unit of [BARE, ...before]) console.log(`${throughputTable([{ version, throughput }], unit.name)}\n`);
  console.log(await compareWithRemoteStores({ ...OURS, command: [MAIN, 'serve'] }, { before: [mainBefore, urlBefore], now: [MAIN, url] }));
} finally {
  await server.remove();
  await rm(file);
}

/** Imports the numbers into a new database by the program `main`. Returns the database's URL. */
async function fill(name: string, main: string): Promise<string> {
  const url = await createDatabase(server.url, name);
  await runCommand(url, ['migrate'], main);
  await runCommand(url, ['import', file], main);
  await vacuum(url);
  return url;
}
