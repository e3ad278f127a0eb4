/** An import on its own PostgreSQL, which it loses, or beside which it is stopped, while it writes. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import type { Sql } from 'postgres';
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest';
import { migrateDatabase } from '../../../src/database/migrations.js';
import { Stopped } from '../../../src/operator/commands/signals.js';
import { importNumbers } from '../../../src/operator/numbers/import.js';
import { migrationsFolder } from '../../../src/packageFolder.js';
import { type Commands, useCommand } from '../../support/command.js';
import { connectTo, untilLockIsAwaited } from '../../support/connection.js';
import { expectDerivedToAgree } from '../../support/derived.js';
import { ndjson } from '../../support/ndjson.js';
import { type PostgresServer, startPostgres } from '../../support/postgresServer.js';
import { until } from '../../support/until.js';
import { manyNumbers } from './importing.js';

/** About four steps, two at a time. */
export const COUNT = 800;
export const before = manyNumbers(COUNT).map((item) => ({ ...item, internalName: 'Before' }));
export const file = before.map((item, i) => ({
  ...item,
  internalName: 'After',
  carrierStatuses: before[COUNT - 1 - i]?.carrierStatuses,
}));
export const bytes = (items: unknown[]) => Readable.from([Buffer.from(ndjson(items))]);

export let command: Commands;
export let sql: Sql;
let server: PostgresServer;
/** The database of the current test. */
export let url: string;
let created = 0;
export const inThisProcess = (args: string[], stop?: AbortSignal) =>
  command.run(args, '', { environment: { DATABASE_URL: url }, stop });

/** Starts a PostgreSQL for all tests of a file; each has a database with the numbers of `before`, and the folder a file with `file`. */
export function useServer(): void {
  command = useCommand();
  beforeAll(async () => {
    server = await startPostgres();
    await create('prepared');
    await migrateDatabase(url, migrationsFolder);
    await importNumbers(url, bytes(before));
    await writeFile(join(command.folder, 'file.ndjson'), ndjson(file));
  });
  afterAll(() => server.remove());
  beforeEach(async () => {
    // A copy takes a tenth of the CPU time of an import.
    await create(`copy_${++created}`, 'prepared');
    sql = connectTo(url);
  });
  afterEach(() => sql.end());
}

/** Creates the database `url`. */
async function create(name: string, template = 'template1'): Promise<void> {
  const admin = connectTo(server.url);
  await admin.unsafe(`CREATE DATABASE ${name} TEMPLATE ${template}`);
  await admin.end();
  url = Object.assign(new URL(server.url), { pathname: `/${name}` }).href;
}

/** Returns how many numbers are as in the file; fails unless each of the rest is wholly as before. */
export async function countWritten(): Promise<number> {
  const rows = await sql`
    SELECT internal_name AS name, phone_number, (
      SELECT count(*)::int FROM carrier_statuses AS entry WHERE entry.phone_number = number.phone_number
    ) AS entries FROM branded_phone_numbers AS number`;
  const entriesOf = (items: { phoneNumber: string; carrierStatuses?: unknown[] | undefined }[]) =>
    new Map(items.map(({ phoneNumber, carrierStatuses = [] }) => [phoneNumber, carrierStatuses.length]));
  const expected = { Before: entriesOf(before), After: entriesOf(file) };
  for (const { name, phone_number: phoneNumber, entries } of rows)
    expect(entries).toBe(expected[name as keyof typeof expected].get(phoneNumber));
  await expectDerivedToAgree(sql);
  return rows.filter(({ name }) => name === 'After').length;
}

/** Starts the import, and waits until it has written some numbers; it cannot finish until `holder` ends. */
export async function startImport<T>(start: (args: string[]) => T) {
  const holder = connectTo(url);
  await holder`BEGIN`;
  await holder`SELECT FROM branded_phone_numbers WHERE phone_number = ${file[COUNT - 1]?.phoneNumber ?? ''} FOR UPDATE`;
  const running = start(['import', 'file.ndjson']);
  const firstWritten = () => sql`SELECT FROM branded_phone_numbers WHERE internal_name = 'After' LIMIT 1`;
  await until(async () => (await firstWritten()).length > 0, 'the import writes', 60_000);
  return { running, holder };
}

/** Fails unless the same import, run again, imports everything. */
export async function expectSameImportToFinish(): Promise<void> {
  const { code, stdout } = await inThisProcess(['import', 'file.ndjson']);
  expect([code, stdout]).toEqual([0, expect.stringContaining(`imported ${COUNT} numbers, `)]);
  expect(await countWritten()).toBe(COUNT);
}

/** Stops PostgreSQL by this signal, ends the sessions of the test, among them `holder`, and starts PostgreSQL again. */
async function restart(signal: 'SIGINT' | 'SIGKILL', holder: Sql): Promise<void> {
  await server.stop(signal);
  await holder.end({ timeout: 0 });
  await sql.end({ timeout: 0 });
  await server.start();
  sql = connectTo(url);
}

/** Fails unless an import that is stopped by this signal says how much it has imported, and the same import finishes it. */
export async function expectReport(signal: NodeJS.Signals, status: number): Promise<void> {
  const stop = new AbortController();
  const { running, holder } = await startImport((args) => inThisProcess(args, stop.signal));
  stop.abort(new Stopped(signal));
  const { code, stdout, stderr } = await running;
  await holder.end();
  const done = await countWritten();
  expect([code, stdout]).toEqual([status, '']);
  expect(stderr).toBe(
    `stopped by ${signal}\nimported ${done} of ${COUNT} numbers; run the same import again to finish it\n`,
  );
  expect(done).toBeGreaterThan(0);
  await expectSameImportToFinish();
}

/** Fails unless an import continues after PostgreSQL is stopped by this signal and started again. */
export async function expectToContinueAfter(signal: 'SIGINT' | 'SIGKILL'): Promise<void> {
  const { running, holder } = await startImport(inThisProcess);
  await restart(signal, holder);
  expect(await running).toMatchObject({ code: 0, stderr: '' });
  expect(await countWritten()).toBe(COUNT);
}

/** Fails unless a check continues after PostgreSQL is restarted while the check waits for what this statement locks. */
export async function expectCheckToContinue(lock: string): Promise<void> {
  const holder = connectTo(url);
  await holder`BEGIN`;
  await holder.unsafe(lock);
  const running = inThisProcess(['check']);
  await untilLockIsAwaited(sql, 'the check waits');
  await restart('SIGINT', holder);
  expect(await running).toMatchObject({ code: 0, stdout: 'OK: the read model matches its sources\n' });
}
