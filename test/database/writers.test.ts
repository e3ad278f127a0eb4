/** Programs that write the sources in SQL: what the read model shows then, and what they cannot do. */
import { readFileSync } from 'node:fs';
import { beforeEach, describe, expect, it } from 'vitest';
import { expectDerivedToAgree, items } from '../support/derived.js';
import { addNumber, PROFILE, second, first as sql, useSessions } from '../support/sessions.js';

const PHONE = '+14155550123';

useSessions();

const addEntry = (phoneNumber: string) =>
  sql`INSERT INTO carrier_statuses VALUES (${phoneNumber}, 'AT&T', 'brandedCallerId', 'approved.optIn')`;
const statuses = async () => (await items(sql)).map(({ phoneNumber, status }) => [phoneNumber, status]);

describe('the table of docs/operations.md', () => {
  const manual = readFileSync('docs/operations.md', 'utf8');

  it.each(['business_profiles', 'branded_phone_numbers', 'carrier_statuses'])(
    'has the columns of %s',
    async (table) => {
      const [, cell = ''] = new RegExp(`^\\| \`${table}\` \\| (.*) \\|$`, 'm').exec(manual) ?? [];
      const [required = '', optional = ''] = cell.split(/[;(]/);
      const named = (text: string) => [...text.matchAll(/`(\w+)`/g)].map(([, column]) => column).sort();
      const columns = await sql`
      SELECT column_name AS name, is_nullable = 'YES' OR column_default IS NOT NULL OR is_generated = 'ALWAYS' AS "isOptional"
      FROM information_schema.columns WHERE table_name = ${table} AND table_schema = 'public' ORDER BY 1`;
      const names = (isOptional: boolean) =>
        columns.filter((column) => column.isOptional === isOptional).map(({ name }) => name);
      expect([named(required), named(optional)]).toEqual([names(false), names(true)]);
    },
  );

  it('is followed by an INSERT of a number with its profile and an entry', async () => {
    const [, statement = ''] = /^```sql\n(WITH profile [^`]*)```/m.exec(manual) ?? [];
    await sql.unsafe(statement);
    expect(await items(sql)).toMatchObject([
      { phoneNumber: '+14155550199', status: 'submitted for review', businessProfile: { businessName: 'Circle Bank' } },
    ]);
    await expectDerivedToAgree(sql);
  });
});

describe('a writer in SQL', () => {
  beforeEach(async () => {
    await addNumber(sql, PHONE);
    await addEntry(PHONE);
  });

  it.each(['on', 'import'])('can defer deriving until the end of its transaction by defer = %s', async (defer) => {
    const updatedAt = '2026-02-03T16:49:02.748Z';
    await sql.begin(async (transaction) => {
      await transaction.unsafe(`SET LOCAL branded_phone_numbers.defer = '${defer}'`);
      await transaction`
        INSERT INTO branded_phone_numbers (phone_number, business_profile_id, updated_at)
        VALUES ('+19', ${PROFILE}, ${updatedAt})`;
      await transaction`INSERT INTO carrier_statuses VALUES ('+19', 'AT&T', 'brandedCallerId', 'rejected.optIn')`;
      await transaction`DELETE FROM branded_phone_numbers WHERE phone_number = ${PHONE}`;
      expect(await transaction`SELECT FROM items`).toHaveLength(1);
    });
    expect(await items(sql)).toMatchObject([{ phoneNumber: '+19', status: 'rejected', updatedAt }]);
    expect(await sql`SELECT FROM deferred`).toHaveLength(0);
    await expectDerivedToAgree(sql);
  });

  it('has a deferred number derived once, however many statements change it', async () => {
    // The scans of earlier transactions count as well until they are flushed.
    await sql`SELECT pg_stat_force_next_flush()`;
    await sql`BEGIN`;
    await sql`SET LOCAL branded_phone_numbers.defer = 'on'`;
    for (let i = 0; i < 50; i++) {
      await sql`UPDATE branded_phone_numbers SET internal_name = ${`Name ${i}`} WHERE phone_number = ${PHONE}`;
    }
    await sql`SET CONSTRAINTS derive_deferred IMMEDIATE`;
    const [scans] = await sql`SELECT pg_stat_get_xact_numscans('deferred'::regclass)::int AS count`;
    await sql`COMMIT`;
    // One scan to collect the numbers, one to delete the rows.
    expect(scans?.count).toBe(2);
    await expectDerivedToAgree(sql);
  });

  it('changes entries, and so items, without writing to their indexes', async () => {
    await sql`
      WITH number AS (
        INSERT INTO branded_phone_numbers (phone_number, business_profile_id)
        SELECT '+1' || i, ${PROFILE} FROM generate_series(1000, 1999) AS i RETURNING phone_number
      )
      INSERT INTO carrier_statuses SELECT phone_number, 'Verizon', 'brandedCallerId', 'approved.optIn' FROM number`;
    await sql`SELECT pg_stat_force_next_flush()`; // the rows of earlier transactions count until then
    await sql`BEGIN`;
    await sql`UPDATE carrier_statuses SET detailed_status = 'rejected.optIn' WHERE phone_number LIKE '+1__50'`;
    for (const table of ['carrier_statuses', 'items']) {
      const [updated] = await sql`
        SELECT pg_stat_get_xact_tuples_updated(oid)::int AS rows, pg_stat_get_xact_tuples_hot_updated(oid)::int AS hot
        FROM pg_class WHERE oid = ${table}::regclass`;
      expect(updated, table).toEqual({ rows: 10, hot: 10 });
    }
    await sql`COMMIT`;
  });

  it.each(['branded_phone_numbers', 'carrier_statuses'])(
    'cannot change the phone number of a row in %s',
    async (table) => {
      await addNumber(sql, '+18');
      await expect(
        sql`UPDATE ${sql(table)} SET phone_number = '+19' WHERE phone_number = ${PHONE}`,
      ).rejects.toMatchObject({
        code: '23001',
        message: `phone_number never changes: delete the row of ${PHONE} in ${table} and insert one of +19`,
      });
      await expectDerivedToAgree(sql);
    },
  );

  it.each(['REPEATABLE READ', 'SERIALIZABLE'])('cannot TRUNCATE in a %s transaction', async (isolation) => {
    await second.unsafe(`BEGIN ISOLATION LEVEL ${isolation}`);
    await second`TABLE carrier_statuses`;
    await addNumber(sql, '+19');
    await addEntry('+19');
    await expect(second`TRUNCATE branded_phone_numbers, carrier_statuses`).rejects.toMatchObject({
      code: '0A000',
      message: 'TRUNCATE needs the isolation level READ COMMITTED: begin the transaction with it',
    });
    await second`ROLLBACK`;
    expect(await statuses()).toHaveLength(2);
    await expectDerivedToAgree(sql);
  });
});
