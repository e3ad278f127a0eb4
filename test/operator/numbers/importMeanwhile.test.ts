/** Imports beside other imports, other writers and an operator's triggers. */
import { describe, expect, inject, test } from 'vitest';
import { useConnection } from '../../support/connection.js';
import { expectDerivedToAgree } from '../../support/derived.js';
import { until } from '../../support/until.js';
import { database, manyNumbers, number, run, stored, useDatabase } from './importing.js';

useDatabase();

test('two concurrent imports write each number as a whole', async () => {
  const count = 2_000 * inject('tries');
  const second = manyNumbers(count).map((item) => ({ ...item, internalName: 'Second', reportingGroup: 'Second' }));
  const first = second.map((item) => ({
    ...item,
    internalName: 'First',
    reportingGroup: 'First',
    carrierStatuses: [],
  }));
  const results = await Promise.all([run(first), run(second), run(first), run(second.toReversed())]);
  expect(results.map(({ numbers }) => numbers)).toEqual(Array(4).fill(count));
  const rows = await stored();
  expect(rows).toHaveLength(count);
  for (const [i, { internal_name: name, reporting_group: group, carrier_statuses: entries }] of rows.entries()) {
    expect(group).toBe(name);
    const { carrierStatuses = [] } = second.find(({ phoneNumber }) => phoneNumber === rows[i]?.phone_number) ?? {};
    expect(entries).toHaveLength(name === 'First' ? 0 : carrierStatuses.length);
  }
  await expectDerivedToAgree(database.$client);
});

describe('an import beside an open transaction', () => {
  const HELD = ['+10', '+11'];
  const OF_HELD = `WHERE phone_number = ANY ('{${HELD}}')`;
  const items = Array.from({ length: 50 }, (_, i) => number({ phoneNumber: `+1${i}` }));

  test.each([
    ['changed two numbers', `UPDATE branded_phone_numbers SET internal_name = 'Held' ${OF_HELD}`],
    ['changed their entries', `UPDATE carrier_statuses SET carrier = 'Held' ${OF_HELD}`],
    ['locked them', `SELECT FROM branded_phone_numbers ${OF_HELD} FOR UPDATE`],
    [
      'added entries, with deriving deferred',
      `SET LOCAL branded_phone_numbers.defer = 'on';
       INSERT INTO carrier_statuses SELECT unnest('{${HELD}}'::text[]), 'Held', 'spamRemediation', 'approved.optIn'`,
    ],
  ])('that %s writes all other numbers, then waits for the transaction', async (_what, statement) => {
    await run(items);
    const writer = useConnection(database.url);
    await writer.unsafe(`BEGIN; ${statement}`);
    const importing = run(items.map((item) => ({ ...item, internalName: 'Imported' })));
    const notImported = async () =>
      (await stored()).flatMap(({ phone_number, internal_name }) => (internal_name === 'Imported' ? [] : phone_number));
    await until(async () => (await notImported()).length === HELD.length, 'the import has written all other numbers');
    expect(await notImported()).toEqual(HELD);
    await writer.unsafe(`
      UPDATE branded_phone_numbers SET internal_name = 'New' ${OF_HELD};
      UPDATE carrier_statuses SET carrier = 'New' ${OF_HELD} AND carrier <> 'Held';
      COMMIT`);
    await importing;
    expect(await notImported()).toEqual([]);
    expect((await stored()).flatMap(({ carrier_statuses: entries }) => entries)).toHaveLength(items.length);
    await expectDerivedToAgree(database.$client);
  });
});

test.each(['DISABLE', 'ENABLE ALWAYS', 'ENABLE REPLICA'])(
  'an import with our triggers set to %s derives the read model, and fires an operator’s triggers unless they are disabled',
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
      CREATE TRIGGER touch_never AFTER INSERT ON branded_phone_numbers FOR EACH ROW EXECUTE FUNCTION touch('+16');
      ALTER TABLE branded_phone_numbers DISABLE TRIGGER touch_never;
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
