/** What other imports and readers see while an import runs. */
import { expect, test } from 'vitest';
import { connectTo } from '../connection.js';
import { expectDerivedToAgree } from '../database/derived.js';
import { until } from '../until.js';
import { database, databaseUrl, manyNumbers, number, run, stored, useDatabase } from './importing.js';

useDatabase();

test('Two imports at once wait for each other', async () => {
  const [first, second] = [manyNumbers(1000), manyNumbers(1000).map((item) => ({ ...item, reportingGroup: 'Second' }))];
  const results = await Promise.all([run(first), run(second), run(first), run(second.toReversed())]);
  expect(results.map(({ numbers }) => numbers)).toEqual([1000, 1000, 1000, 1000]);
  expect(await stored()).toHaveLength(1000);
  expect(new Set((await stored()).map(({ reporting_group: group }) => group === 'Second')).size).toBe(1);
  await expectDerivedToAgree(database.$client);
});

test('Pages are read while an import holds its locks', async () => {
  await run(manyNumbers(10));
  const count = async () => (await database.$client`SELECT count(*)::int FROM branded_phone_numbers`)[0]?.count;
  const importing = await database.$client.begin(async (sql) => {
    // The import waits for this in the middle of its writing.
    await sql`LOCK TABLE postings IN SHARE MODE`;
    const importing = run(manyNumbers(1000), {}, 65_536);
    await until(
      async () => {
        const [row] = await database.$client`
        SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`;
        return row !== undefined;
      },
      'the import waits',
      30_000,
    );
    expect(await count()).toBe(10);
    return { ends: importing };
  });
  const seen = [await count()];
  let isDone = false;
  const end = importing.ends.finally(() => {
    isDone = true;
  });
  while (!isDone) seen.push(await count());
  await end;
  expect(await count()).toBe(1000);
  expect(seen.filter((each) => each !== 10 && each !== 1000)).toEqual([]);
});

test.each([
  ['has changed a number', `UPDATE branded_phone_numbers SET internal_name = 'New'`],
  ['has locked a number', 'SELECT FROM branded_phone_numbers FOR UPDATE'],
])('A writer that %s can go on to change it and its entries while an import waits', async (_what, statement) => {
  await run([number()]);
  const writer = connectTo(databaseUrl);
  await writer`BEGIN`;
  await writer.unsafe(statement);
  const importing = run([number({ phoneNumber: '+19' })]);
  const isWaiting = async () => {
    const [row] = await database.$client`
      SELECT FROM pg_stat_activity
      WHERE datname = current_database() AND query LIKE 'LOCK TABLE branded_phone_numbers%' AND wait_event_type = 'Lock'`;
    return row !== undefined;
  };
  await until(isWaiting, 'the import waits for the numbers', 30_000);
  await writer`UPDATE branded_phone_numbers SET internal_name = 'New'`;
  await writer`UPDATE carrier_statuses SET detailed_status = 'rejected.optIn'`;
  await writer`COMMIT`;
  await writer.end();
  expect(await importing).toMatchObject({ numbers: 1 });
  expect(await stored()).toMatchObject([{ status: 'rejected', internal_name: 'New' }, { phone_number: '+19' }]);
  await expectDerivedToAgree(database.$client);
});

test('Triggers of an operator fire in an import, and stay switched off where they were', async () => {
  const sql = database.$client;
  await sql.unsafe(`
    CREATE TABLE fired (name text);
    CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO fired VALUES (TG_NAME); RETURN NULL; END';
    CREATE TRIGGER on_duty AFTER INSERT ON branded_phone_numbers FOR EACH STATEMENT EXECUTE FUNCTION fire();
    CREATE TRIGGER off_duty AFTER INSERT ON branded_phone_numbers FOR EACH STATEMENT EXECUTE FUNCTION fire();
    ALTER TABLE branded_phone_numbers DISABLE TRIGGER off_duty`);
  await run([number()]);
  await run([number({ phoneNumber: '+19' })]);
  expect([...(await sql`SELECT DISTINCT name FROM fired`)]).toEqual([{ name: 'on_duty' }]);
});

test.each(['DISABLE', 'ENABLE ALWAYS', 'ENABLE REPLICA'])(
  'An import beside triggers that change other numbers, with the deriving ones set to %s, leaves the list right',
  async (setting) => {
    await run([number({ phoneNumber: '+18' }), number({ phoneNumber: '+17' })]);
    const sql = database.$client;
    const triggers = () =>
      sql`SELECT tgrelid, tgname, tgenabled FROM pg_trigger WHERE NOT tgisinternal ORDER BY tgrelid, tgname`;
    await sql.unsafe(`
      CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        UPDATE branded_phone_numbers SET internal_name = TG_NAME WHERE phone_number = TG_ARGV[0] AND NEW.phone_number = '+19';
        RETURN NULL;
      END $$;
      CREATE TRIGGER touch_now AFTER INSERT ON branded_phone_numbers FOR EACH ROW EXECUTE FUNCTION touch('+18');
      CREATE CONSTRAINT TRIGGER touch_later AFTER INSERT ON branded_phone_numbers DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW EXECUTE FUNCTION touch('+17');
      ALTER TABLE branded_phone_numbers ${setting} TRIGGER derive_inserted;
      ALTER TABLE carrier_statuses ${setting} TRIGGER derive_inserted, ${setting} TRIGGER derive_updated`);
    const before = await triggers();
    await run([number({ phoneNumber: '+19' }), number({ phoneNumber: '+16', carrierStatuses: [] })]);
    const names = (await stored()).map(({ internal_name: name }) => name);
    expect(names).toEqual(['Main Line', 'touch_later', 'touch_now', 'Main Line']);
    await expectDerivedToAgree(sql);
    expect(await triggers()).toEqual(before);
    await sql.unsafe(`
      DROP FUNCTION touch CASCADE;
      ALTER TABLE branded_phone_numbers ENABLE TRIGGER derive_inserted;
      ALTER TABLE carrier_statuses ENABLE TRIGGER derive_inserted, ENABLE TRIGGER derive_updated`);
  },
);
