/**
 * `make bench-compare BEFORE=commit`: compares first pages, with the rate limit, of this version, the version of that commit and a
 * bare server, on the same numbers. Prints a table for each baseline, and writes that of the other version to
 * docs/performance.md. bench/main.ts lists the options.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { writeNumbers } from '../test/support/generatedNumbers.js';
import { startPostgres } from '../test/support/postgresServer.js';
import { createDatabase, installedVersion, VERSIONS, vacuum } from './database.js';
import { machine, writeSections } from './document.js';
import { MAIN, mainOf, RESULTS, runCommand } from './program.js';
import { throughputTable } from './report.js';
import { BARE, measureThroughput, OURS } from './throughput.js';

const NUMBERS = 20_000;
const [version = ''] = VERSIONS;
const { BEFORE = '', BEFORE_FOLDER = '' } = process.env;
const mainBefore = mainOf(BEFORE_FOLDER);

const file = join(RESULTS, 'compare.ndjson');
await writeNumbers(file, NUMBERS);
const server = await startPostgres({}, installedVersion(version));
try {
  const url = await fill('now', MAIN);
  const urlBefore = await fill('before', mainBefore);
  const now = { ...OURS, canMix: false };
  const before = {
    ...now,
    name: `ours, at ${BEFORE}`,
    command: [mainBefore, 'serve'],
    environment: { ...OURS.environment, DATABASE_URL: urlBefore },
  };
  const throughput = await measureThroughput(url, [now, before, BARE]);
  const versions = throughput.slice(0, 2);
  const text = `PostgreSQL ${version}, ${NUMBERS} numbers, ${machine()}:\n\n${throughputTable(versions, before.name)}`;
  console.log(`${text}\n\n${throughputTable(throughput, BARE.name)}`);
  await writeSections('docs/performance.md', { compare: text });
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
