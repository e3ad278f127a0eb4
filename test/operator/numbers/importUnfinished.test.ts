/**
 * What an import or a delete leaves behind if it ends early, and how the same command finishes it. importUnfinished.soak.test.ts
 * has other signals, and a check that loses PostgreSQL.
 */
import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { Stopped } from '../../../src/operator/commands/signals.js';
import { deleteNumbers } from '../../../src/operator/numbers/delete.js';
import { importNumbers } from '../../../src/operator/numbers/import.js';
import { Unfinished } from '../../../src/userError.js';
import { connectTo } from '../../support/connection.js';
import { expectDerivedToAgree } from '../../support/derived.js';
import { ndjson } from '../../support/ndjson.js';
import { until } from '../../support/until.js';
import {
  before,
  bytes,
  COUNT,
  command,
  countWritten,
  expectReport,
  expectSameImportToFinish,
  expectToContinueAfter,
  file,
  inThisProcess,
  sql,
  startImport,
  url,
  useServer,
} from './importUnfinished.js';

useServer();

const DISK_ERROR = Object.assign(new Error('EIO: i/o error, read'), { code: 'EIO' });

it.each<[string, (pid: number, stop: AbortController) => unknown, number, RegExp]>([
  [
    'may be run again if PostgreSQL has canceled it',
    (pid) => sql`SELECT pg_cancel_backend(${pid})`,
    75,
    /the log of PostgreSQL has the error/,
  ],
  ['says why its input failed', () => Promise.reject(DISK_ERROR), 1, /^EIO: i\/o error, read\n$/],
  ['names the signal', (_pid, stop) => stop.abort(new Stopped('SIGTERM')), 143, /^stopped by SIGTERM\n$/],
])('an import that ends while it reads changes nothing, and %s', async (_what, end, code, reason) => {
  const stop = new AbortController();
  const copying = () => sql`SELECT pid FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'COPY staged%'`;
  async function* input() {
    yield Buffer.from(ndjson(file));
    await until(async () => (await copying()).length === 1, 'the lines are copied');
    for (const { pid } of await copying()) await end(pid, stop);
  }
  const around = { environment: { DATABASE_URL: url }, stop: stop.signal };
  const ended = await command.run(['import', '-'], Readable.from(input()), around);
  expect([ended.code, ended.stderr]).toEqual([code, expect.stringMatching(reason)]);
  expect(await countWritten()).toBe(0);
});

describe('an import that ends while writing', () => {
  // A process that exits by each signal is in signals.test.ts.
  it('reports how many numbers it imported, and is finished by the same import, after SIGTERM', () =>
    expectReport('SIGTERM', 143));

  it('leaves each number as it was or as the file has it after kill -9', async () => {
    const { running, holder } = await startImport((args) => command.start(args, { DATABASE_URL: url }));
    running.child.kill('SIGKILL');
    await running.finished;
    await holder.end();
    const sessions = () => sql`SELECT FROM pg_stat_activity WHERE application_name LIKE 'branded-phone-numbers %'`;
    await until(async () => (await sessions()).length === 0, 'its sessions end');
    expect(await countWritten()).toBeLessThan(COUNT);
    await expectSameImportToFinish();
  });

  it('reports business profiles that are not imported', async () => {
    const renamed = before.map((item) => ({
      ...item,
      businessProfile: { ...item.businessProfile, businessName: 'New' },
    }));
    const holder = connectTo(url);
    await holder`BEGIN`;
    const held =
      await holder`SELECT FROM business_profiles WHERE id::text < '00000000-0000-4000-8000-000000000004' FOR UPDATE`;
    const stop = new AbortController();
    const importing = importNumbers(url, bytes(renamed), { signal: stop.signal }).catch((error) => error);
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
    const { code, stdout, stderr } = await inThisProcess(['import', 'file.ndjson']);
    await sql`DROP FUNCTION fail CASCADE`;
    expect([code, stdout, stderr]).toEqual([
      75,
      '',
      `could not extend file: No space left on device (PL/pgSQL function fail() line 1 at RAISE)\nimported ${await countWritten()} of ${COUNT} numbers; run the same import again to finish it\n`,
    ]);
    await expectSameImportToFinish();
  });
});

it('an import continues after PostgreSQL is killed and started again', () => expectToContinueAfter('SIGKILL'));

it('a delete that ends while writing says how many numbers it deleted, and is finished with --if-exists', async () => {
  const lines = file.map(({ phoneNumber }) => `${phoneNumber}\n`).join('');
  const stop = new AbortController();
  const deleting = deleteNumbers(url, Readable.from([Buffer.from(lines)]), {
    jobs: 1,
    signal: stop.signal,
    onProgress: ({ written }) => written > 0 && stop.abort(new Error('stopped')),
  });
  const error = await deleting.catch((thrown) => thrown);
  const left = (await sql`SELECT FROM branded_phone_numbers`).length;
  expect(error).toBeInstanceOf(Unfinished);
  expect(error.message).toBe(
    `deleted ${COUNT - left} of ${COUNT} numbers; run the same delete again with --if-exists to finish it`,
  );
  expect(left).toBeGreaterThan(0);
  await expectDerivedToAgree(sql);
  const finish = await command.run(['delete', '--if-exists'], lines, { environment: { DATABASE_URL: url } });
  expect(finish).toMatchObject({ code: 0, stdout: `deleted ${left} numbers\n` });
  expect(await sql`SELECT FROM items`).toHaveLength(0);
});
