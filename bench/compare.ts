/**
 * `make bench-compare BEFORE='commit commit'`: compares first pages, with the rate limit, of this version, the versions of those
 * commits and a bare server, on the same numbers. Prints a table relative to the first commit and one relative to the bare server,
 * and writes the first to docs/performance.md. bench/main.ts lists the options.
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
const { BEFORE = '', BEFORE_FOLDERS = '' } = process.env;
const commits = BEFORE.split(' ');
const folders = BEFORE_FOLDERS.split(' ');

const file = join(RESULTS, 'compare.ndjson');
await writeNumbers(file, NUMBERS);
const server = await startPostgres({}, installedVersion(version));
try {
  const url = await fill('now', MAIN);
  const now = { ...OURS, canMix: false };
  const nameOf = (commit = '') => `ours, at ${commit}`;
  const before = [];
  for (const [i, folder] of folders.entries()) {
    const main = mainOf(folder);
    const environment = { ...OURS.environment, DATABASE_URL: await fill(`before_${i}`, main) };
    before.push({ ...now, name: nameOf(commits[i]), command: [main, 'serve'], environment });
  }
  const throughput = await measureThroughput(url, [now, ...before, BARE]);
  const versions = throughput.slice(0, 1 + before.length);
  const table = throughputTable(versions, nameOf(commits[0]));
  const text = `PostgreSQL ${version}, ${NUMBERS} numbers, ${machine()}:\n\n${table}`;
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
