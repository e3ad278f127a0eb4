/** What an import or a delete leaves behind if it ends early, and how the same command finishes it. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import type { Sql } from 'postgres';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { migrateDatabase } from '../../../src/database/migrations.js';
import { type Signals, Stopped } from '../../../src/operator/commands/signals.js';
import { deleteNumbers } from '../../../src/operator/numbers/delete.js';
import { importNumbers } from '../../../src/operator/numbers/import.js';
import { Unfinished } from '../../../src/operator/numbers/staging.js';
import { migrationsFolder } from '../../../src/packageFolder.js';
import { useCommand } from '../../support/command.js';
import { connectTo, untilLockIsAwaited } from '../../support/connection.js';
import { closeDatabase, openDatabase } from '../../support/database.js';
import { expectDerivedToAgree } from '../../support/derived.js';
import { ndjson } from '../../support/ndjson.js';
import { type PostgresServer, startPostgres } from '../../support/postgresServer.js';
import { until } from '../../support/until.js';
import { manyNumbers } from './importing.js';

/** About four steps, two at a time. */
const COUNT = 800;
const before = manyNumbers(COUNT).map((item) => ({ ...item, internalName: 'Before' }));
const file = before.map((item, i) => ({
  ...item,
  internalName: 'After',
  carrierStatuses: before[COUNT - 1 - i]?.carrierStatuses,
}));
const bytes = (items: unknown[]) => Readable.from([Buffer.from(ndjson(items))]);

const command = useCommand();
let server: PostgresServer;
let sql: Sql;
const environment = () => ({ DATABASE_URL: server.url });
const asProcess = (args: string[]) => command.start(args, environment());
const inThisProcess = (args: string[], signals?: Signals) =>
  command.run(args, '', { environment: environment(), ...(signals && { signals }) });

beforeAll(async () => {
  server = await startPostgres();
  await migrateDatabase(server.url, migrationsFolder);
  await writeFile(join(command.folder, 'file.ndjson'), ndjson(file));
});
afterAll(() => server.remove());
beforeEach(async () => {
  sql = connectTo(server.url);
  await sql`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`;
  await withDatabase((database) => importNumbers(database.url, bytes(before)));
});
afterEach(() => sql.end());

async function withDatabase<T>(work: (database: ReturnType<typeof openDatabase>) => Promise<T>): Promise<T> {
  const database = openDatabase(server.url);
  return work(database).finally(() => closeDatabase(database));
}

/** Returns how many numbers are as in the file; fails unless each of the rest is wholly as before. */
async function countWritten(): Promise<number> {
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
async function startImport<T>(start: (args: string[]) => T) {
  const holder = connectTo(server.url);
  await holder`BEGIN`;
  await holder`SELECT FROM branded_phone_numbers WHERE phone_number = ${file[COUNT - 1]?.phoneNumber ?? ''} FOR UPDATE`;
  const running = start(['import', 'file.ndjson']);
  const firstWritten = () => sql`SELECT FROM branded_phone_numbers WHERE internal_name = 'After' LIMIT 1`;
  await until(async () => (await firstWritten()).length > 0, 'the import writes', 60_000);
  return { running, holder };
}

async function expectSameImportToFinish(): Promise<void> {
  const { code, stdout } = await command.run(['import', 'file.ndjson'], '', { environment: environment() });
  expect([code, stdout]).toEqual([0, expect.stringContaining(`imported ${COUNT} numbers, `)]);
  expect(await countWritten()).toBe(COUNT);
}

describe('an import whose input fails', () => {
  it('changes nothing', async () => {
    async function* failing() {
      yield Buffer.from(ndjson(file.slice(0, COUNT / 2)));
      throw new Error('the disk is gone');
    }
    const importing = withDatabase((database) => importNumbers(database.url, Readable.from(failing())));
    await expect(importing).rejects.toThrow('the disk is gone');
    expect(await countWritten()).toBe(0);
  });
});

it('an import that PostgreSQL cancels while it reads may be run again', async () => {
  const copying = () => sql`SELECT pid FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'COPY staged%'`;
  async function* input() {
    yield Buffer.from(ndjson(file));
    await until(async () => (await copying()).length === 1, 'the lines are copied');
    for (const { pid } of await copying()) await sql`SELECT pg_cancel_backend(${pid})`;
  }
  const { code, stderr } = await command.run(['import', '-'], Readable.from(input()), { environment: environment() });
  expect({ code, stderr }).toEqual({ code: 75, stderr: expect.stringMatching(/the log of PostgreSQL has the error/) });
  expect(await countWritten()).toBe(0);
});

describe('an import that ends while writing', () => {
  // A process that exits by each signal is in signals.test.ts.
  it.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)(
    'reports how many numbers it imported, and is finished by the same import, after %s (exit status %i)',
    async (signal, status) => {
      const [first, second] = [new AbortController(), new AbortController()];
      const signals = { first: first.signal, second: second.signal };
      const { running, holder } = await startImport((args) => inThisProcess(args, signals));
      first.abort(new Stopped(signal));
      const { code, stdout, stderr } = await running;
      await holder.end();
      const done = await countWritten();
      expect([code, stdout]).toEqual([status, '']);
      expect(stderr).toBe(
        `stopped by ${signal}\nimported ${done} of ${COUNT} numbers; run the same import again to finish it\n`,
      );
      expect(done).toBeGreaterThan(0);
      await expectSameImportToFinish();
    },
  );

  it('leaves each number as it was or as the file has it after kill -9', async () => {
    const { running, holder } = await startImport(asProcess);
    running.child.kill('SIGKILL');
    await running.finished;
    await holder.end();
    const sessions = () => sql`SELECT FROM pg_stat_activity WHERE application_name LIKE 'branded-phone-numbers %'`;
    await until(async () => (await sessions()).length === 0, 'its sessions end', 30_000);
    expect(await countWritten()).toBeLessThan(COUNT);
    await expectSameImportToFinish();
  });

  it('reports business profiles that are not imported', async () => {
    const renamed = before.map((item) => ({
      ...item,
      businessProfile: { ...item.businessProfile, businessName: 'New' },
    }));
    const holder = connectTo(server.url);
    await holder`BEGIN`;
    const held =
      await holder`SELECT FROM business_profiles WHERE id::text < '00000000-0000-4000-8000-000000000004' FOR UPDATE`;
    const stop = new AbortController();
    const importing = withDatabase((database) =>
      importNumbers(database.url, bytes(renamed), { signal: stop.signal }).catch((error) => error),
    );
    const left = () => sql`SELECT FROM business_profiles WHERE business_name <> 'New'`;
    await until(async () => (await left()).length === held.length, 'all other profiles are written');
    stop.abort(new Error('stopped'));
    expect(await importing).toMatchObject({
      message: `imported ${COUNT} of ${COUNT} numbers and 6 of 10 changed business profiles; run the same import again to finish it`,
    });
    await holder.end();
  });

  it('reports an error of PostgreSQL that persists, such as a full disk, and the trigger in which it occurs', async () => {
    await sql.unsafe(`
      CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
      CREATE TRIGGER fail BEFORE UPDATE ON branded_phone_numbers FOR EACH ROW
      WHEN (NEW.phone_number = '${file[COUNT - 1]?.phoneNumber}') EXECUTE FUNCTION fail()`);
    const { code, stdout, stderr } = await command.run(['import', 'file.ndjson'], '', { environment: environment() });
    await sql`DROP FUNCTION fail CASCADE`;
    expect([code, stdout, stderr]).toEqual([
      75,
      '',
      `could not extend file: No space left on device (PL/pgSQL function fail() line 1 at RAISE)\nimported ${await countWritten()} of ${COUNT} numbers; run the same import again to finish it\n`,
    ]);
    await expectSameImportToFinish();
  });
});

describe('an import that loses PostgreSQL while writing', () => {
  it('continues after its sessions are terminated', async () => {
    const { running, holder } = await startImport(inThisProcess);
    const end = () =>
      sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'branded-phone-numbers %'`;
    expect((await end()).length).toBeGreaterThan(0);
    await holder.end();
    expect(await running).toMatchObject({ code: 0, stderr: '' });
    expect(await countWritten()).toBe(COUNT);
  });

  it.each(['SIGINT', 'SIGKILL'] as const)(
    'continues after PostgreSQL is stopped by %s and started again',
    async (signal) => {
      const { running, holder } = await startImport(inThisProcess);
      await server.stop(signal);
      await holder.end({ timeout: 0 });
      await sql.end({ timeout: 0 });
      await server.start();
      sql = connectTo(server.url);
      expect(await running).toMatchObject({ code: 0, stderr: '' });
      expect(await countWritten()).toBe(COUNT);
    },
  );
});

describe('a check that loses PostgreSQL', () => {
  it.each(['finds the numbers', 'derives them'])('continues while it %s', async (phase) => {
    const holder = connectTo(server.url);
    await holder`BEGIN`;
    if (phase === 'derives them') await holder`SELECT FROM branded_phone_numbers FOR UPDATE`;
    else await holder`LOCK TABLE carrier_statuses`;
    const running = inThisProcess(['check']);
    await untilLockIsAwaited(sql, 'the check waits', 30_000);
    await server.stop();
    await holder.end({ timeout: 0 });
    await sql.end({ timeout: 0 });
    await server.start();
    sql = connectTo(server.url);
    expect(await running).toMatchObject({ code: 0, stdout: 'OK: the read model matches its sources\n' });
  });
});

describe('a delete that ends while writing', () => {
  it('reports how many numbers it deleted, and is finished by the same delete with --if-exists', async () => {
    const lines = file.map(({ phoneNumber }) => `${phoneNumber}\n`).join('');
    const stop = new AbortController();
    const deleting = withDatabase((database) =>
      deleteNumbers(database.url, Readable.from([Buffer.from(lines)]), {
        jobs: 1,
        signal: stop.signal,
        onProgress: ({ written }) => written > 0 && stop.abort(new Error('stopped')),
      }),
    );
    const error = await deleting.catch((thrown) => thrown);
    const left = (await sql`SELECT FROM branded_phone_numbers`).length;
    expect(error).toBeInstanceOf(Unfinished);
    expect(error.message).toBe(
      `deleted ${COUNT - left} of ${COUNT} numbers; run the same delete again with --if-exists to finish it`,
    );
    expect(left).toBeGreaterThan(0);
    await expectDerivedToAgree(sql);
    const finish = await command.run(['delete', '--if-exists'], lines, { environment: environment() });
    expect(finish).toMatchObject({ code: 0, stdout: `deleted ${left} numbers\n` });
    expect(await sql`SELECT FROM items`).toHaveLength(0);
  });
});
