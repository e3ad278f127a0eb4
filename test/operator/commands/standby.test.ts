/** Commands while the synchronous standby of PostgreSQL is away, for which each commit waits. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { migrateDatabase } from '../../../src/database/migrations.js';
import { migrationsFolder } from '../../../src/packageFolder.js';
import { useCommand } from '../../support/command.js';
import { connectTo } from '../../support/connection.js';
import { ndjson } from '../../support/ndjson.js';
import { numberWith } from '../../support/numbers.js';
import { type PostgresServer, startPostgres, startReplica } from '../../support/postgresServer.js';
import { until } from '../../support/until.js';

const COUNT = 300;
const numbersNamed = (internalName: string) =>
  ndjson(Array.from({ length: COUNT }, (_, i) => numberWith({ phoneNumber: `+1${1000 + i}`, internalName })));
/** Each command, what it prints, and the SQL that counts its changes. */
const COMMANDS: [line: string, printed: RegExp, count: string][] = [
  ['import --jobs 3 after', /^imported 300 numbers, /, `branded_phone_numbers WHERE internal_name = 'After'`],
  ['delete --jobs 3 gone', /^deleted 300 numbers\n$/, `generate_series(1, ${COUNT} - (SELECT count(*) FROM items))`],
  ['check --repair', /^repaired: 300 numbers differ/, 'items'],
  ['keys create --name x', /^bpn_.{43}\n$/, 'api_keys'],
];

const command = useCommand();
let primary: PostgresServer;
let standby: PostgresServer;
let created = 0;

beforeAll(async () => {
  primary = await startPostgres();
  for (const name of ['Before', 'After']) await writeFile(join(command.folder, name.toLowerCase()), numbersNamed(name));
  await writeFile(join(command.folder, 'gone'), Array.from({ length: COUNT }, (_, i) => `+1${1000 + i}\n`).join(''));
  await migrateDatabase(primary.url, migrationsFolder);
  await command.run(['import', 'before'], '', { environment: { DATABASE_URL: primary.url } });
  standby = await startReplica(primary);
});
afterAll(() => Promise.all([standby?.remove(), primary?.remove()]));

const urlOf = (name: string) => Object.assign(new URL(primary.url), { pathname: `/${name}` }).href;

/** Runs statements on the primary, which do not wait for the standby; returns the rows of the last one. */
async function query(name: string, ...statements: string[]) {
  const sql = connectTo(urlOf(name), { connection: { synchronous_commit: 'local' } });
  let rows: Record<string, unknown>[] = [];
  for (const statement of statements) rows = await sql.unsafe(statement);
  await sql.end();
  return rows;
}

/** Starts each command on a database of its own while the standby is away, and waits until it has said so. */
async function startAll() {
  await query('template1', `ALTER SYSTEM SET synchronous_standby_names = 'replica'`, 'SELECT pg_reload_conf()');
  await standby.stop();
  const running = COMMANDS.map(async ([line, printed, count]) => {
    const name = `copy_${++created}`;
    await query('template1', `CREATE DATABASE ${name} TEMPLATE postgres`);
    if (line.startsWith('check')) await query(name, 'DELETE FROM items');
    const { child, out, finished } = command.start(line.split(' '), { DATABASE_URL: urlOf(name) });
    const isSaid = () => out.stderr.includes("a synchronous standby (synchronous_standby_names = 'replica')");
    await until(isSaid, `${line} says what it waits for`);
    return { line, printed, count, name, child, finished };
  });
  return Promise.all(running);
}

it('a command waits for the standby on the connections that it has, and finishes when it is back', async () => {
  const running = await startAll();
  const names = running.map(({ name }) => `'${name}'`).join();
  // Without the looks for what the commands wait for.
  const count = `SELECT count(*)::int FROM pg_stat_activity WHERE datname IN (${names}) AND query NOT LIKE '%pg_blocking_pids%'`;
  const sessions = async () => Number((await query('postgres', count))[0]?.count);
  const before = await sessions();
  // Longer than a statement of a step may take.
  await sleep(17_000);
  let more = 0;
  for (let i = 0; i < 20; i++) {
    if ((await sessions()) > before) more++;
    await sleep(50);
  }
  expect(more).toBeLessThan(5);
  await standby.start();
  for (const { printed, finished } of running) {
    expect(await finished).toMatchObject({ code: 0, stdout: expect.stringMatching(printed) });
  }
});

it('a command that waits for the standby ends within 2 s of a signal, with all that is committed, and leaves no session', async () => {
  for (const { line, printed, count, name, child, finished } of await startAll()) {
    const start = performance.now();
    child.kill('SIGINT');
    const { code, stdout, stderr } = await finished;
    const seconds = (performance.now() - start) / 1000;
    // 2 s, if the machine is not busy.
    expect([line, code, seconds]).toEqual([line, 130, expect.toSatisfy((value: number) => value < 4)]);
    const others = `SELECT FROM pg_stat_activity WHERE datname = '${name}' AND pid <> pg_backend_pid()`;
    await until(async () => (await query(name, others)).length === 0, `${line} leaves no session`);
    const [row] = await query(name, `SELECT count(*)::text FROM ${count}`);
    if (line.startsWith('keys')) expect([stdout, row?.count]).toEqual([expect.stringMatching(printed), '1']);
    else if (!line.startsWith('check')) expect(stderr).toContain(`${row?.count} of ${COUNT} numbers; run the same`);
  }
  await standby.start();
});
