/**
 * `make bench-compare BEFORE=folder`: requests a second of the first page beside a bare server and beside another version,
 * which was built in that folder; each version has imported the same numbers. Prints them relative to each of the three;
 * and the time of a page in both versions if PostgreSQL and Redis are 1 ms away.
 */
import { execFileSync } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import postgres from 'postgres';
import { packageFolder } from '../src/packageFolder.js';
import { writeNumbers } from '../test/support/generatedNumbers.js';
import { startPostgres } from '../test/support/postgresServer.js';
import { compareWithRemoteStores } from './remoteStores.js';
import { RESULTS, throughputTable } from './report.js';
import { BARE, measureThroughput, OURS, OURS_UNLIMITED } from './throughput.js';

const NUMBERS = 20_000;
const { BEFORE = '', BENCH_POSTGRES_VERSIONS = '' } = process.env;
const [version = ''] = BENCH_POSTGRES_VERSIONS.split(' ');

await mkdir(RESULTS, { recursive: true });
const file = join(RESULTS, 'compared.ndjson');
await writeNumbers(file, NUMBERS);
const server = await startPostgres({}, join(packageFolder, '.cache', 'postgres', version, 'package.json'));
try {
  const url = await fill('now', packageFolder);
  const DATABASE_URL = await fill('before', resolve(BEFORE));
  const compared = [OURS, OURS_UNLIMITED];
  const others = compared.map(({ name, path, environment }) => ({
    name: `${name}, before`,
    path,
    command: [mainOf(resolve(BEFORE)), 'serve'],
    environment: { ...environment, DATABASE_URL },
  }));
  const ours = compared.map((each) => ({ ...each, canMix: false }));
  const throughput = await measureThroughput(url, [BARE, ...ours, ...others]);
  for (const base of [BARE, ...others]) console.log(`${throughputTable([{ version, throughput }], base.name)}\n`);
  const { command, environment } = OURS;
  const versions = [
    { name: 'before', command: [mainOf(resolve(BEFORE)), 'serve'], environment: { ...environment, DATABASE_URL } },
    { name: 'now', command, environment: { ...environment, DATABASE_URL: url } },
  ];
  console.log(await compareWithRemoteStores(versions));
} finally {
  await server.remove();
}

/** Makes a database, and fills it by the version in `folder`. */
async function fill(name: string, folder: string): Promise<string> {
  const admin = postgres(server.url, { max: 1 });
  await admin.unsafe(`CREATE DATABASE ${name}`);
  await admin.end();
  const url = new URL(server.url);
  url.pathname = name;
  for (const command of [['migrate'], ['import', file]]) {
    const options = { env: { ...process.env, DATABASE_URL: url.href }, stdio: 'ignore' } as const;
    execFileSync(process.execPath, [mainOf(folder), ...command], options);
  }
  const filled = postgres(url.href, { max: 1 });
  await filled`VACUUM ANALYZE`;
  await filled.end();
  return url.href;
}

function mainOf(folder: string): string {
  return join(folder, 'dist/src/main.js');
}
