import type { Sql } from 'postgres';
import { beforeEach, describe, expect, it } from 'vitest';
import type { CarrierStatus } from '../../generated/types/models/index.js';
import { expectDerivedToAgree } from '../support/derived.js';
import { entryWith, numberWith, PROFILES, write } from '../support/numbers.js';
import { useService } from '../support/service.js';

const service = useService();
const PHONE = '+14155550123';
const BEFORE = '2026-02-03T16:49:02.748Z';
const LATER = '2126-02-03T16:49:02.748Z';

const sql = () => service.database.$client as unknown as Sql;
/** The one number. */
const row = async () => {
  const [found] = await sql()`
    SELECT rfc3339(updated_at) AS time, xmin, ctid FROM items`;
  return found as { time: string; xmin: string; ctid: string };
};

async function writeOne(carrierStatuses: CarrierStatus[]): Promise<void> {
  await sql()`TRUNCATE branded_phone_numbers, business_profiles CASCADE`;
  await write(service.database, [numberWith({ phoneNumber: PHONE, updatedAt: BEFORE, carrierStatuses })]);
  expect((await row()).time).toBe(BEFORE);
}

beforeEach(() => writeOne([entryWith('AT&T', 'brandedCallerId', 'approved.optIn')]));

describe('updatedAt moves forward, no matter which program writes,', () => {
  it.each([
    ['an entry changes its status', `UPDATE carrier_statuses SET detailed_status = 'rejected.optIn'`],
    ['an entry changes its time', `UPDATE carrier_statuses SET created_at = '2026-01-01T00:00:00Z'`],
    [
      'an entry comes',
      `INSERT INTO carrier_statuses VALUES ('${PHONE}', 'Verizon', 'brandedCallerId', 'approved.optIn')`,
    ],
    ['an entry goes', 'DELETE FROM carrier_statuses'],
    ['all entries go', 'TRUNCATE carrier_statuses'],
    ['the internal name changes', `UPDATE branded_phone_numbers SET internal_name = 'New'`],
    ['a branding name goes', 'UPDATE branded_phone_numbers SET branding_name_short = NULL'],
    ['the reporting group changes', `UPDATE branded_phone_numbers SET reporting_group = 'New'`],
    ['it gets another business profile', `UPDATE branded_phone_numbers SET business_profile_id = '${PROFILES[1]?.id}'`],
    ['the id changes', 'UPDATE branded_phone_numbers SET id = gen_random_uuid()'],
    ['createdAt changes', `UPDATE branded_phone_numbers SET created_at = '2026-01-01T00:00:00Z'`],
    [
      'a writer gives an earlier time with another name',
      `UPDATE branded_phone_numbers SET internal_name = 'New', updated_at = '2020-01-01T00:00:00Z'`,
    ],
  ])('when %s', async (_what, statement) => {
    await sql().unsafe(statement);
    const { time } = await row();
    expect(time > BEFORE).toBe(true);
    expect(Math.abs(Date.now() - Date.parse(time))).toBeLessThan(60_000);
    await expectDerivedToAgree(sql());
  });

  it('even if it is already in the future', async () => {
    await sql()`UPDATE branded_phone_numbers SET updated_at = ${LATER}`;
    await sql()`UPDATE carrier_statuses SET detailed_status = 'rejected.optIn'`;
    expect((await row()).time).toBe('2126-02-03T16:49:02.749Z');
    await expectDerivedToAgree(sql());
  });

  it('but never past the latest allowed time; the number can still be changed', async () => {
    const LATEST = '9999-12-31T23:59:59.999Z';
    await sql()`UPDATE branded_phone_numbers SET updated_at = ${LATEST}`;
    await sql()`UPDATE carrier_statuses SET detailed_status = 'rejected.optIn'`;
    await sql()`UPDATE branded_phone_numbers SET internal_name = 'New'`;
    expect((await row()).time).toBe(LATEST);
    expect((await sql()`SELECT internal_name FROM items`)[0]).toEqual({ internal_name: 'New' });
    await expectDerivedToAgree(sql());
  });

  it('and never back, even if a write repairs rows that were written without the triggers', async () => {
    await sql().begin(async (transaction) => {
      await transaction`SET LOCAL session_replication_role = replica`;
      await transaction`UPDATE items SET status = 'rejected'`;
    });
    await sql()`UPDATE branded_phone_numbers SET updated_at = '2020-01-01T00:00:00Z'`;
    expect((await row()).time).toBe(BEFORE);
    await expectDerivedToAgree(sql());
  });

  it('and a later time that the writer gives is kept', async () => {
    await sql()`UPDATE branded_phone_numbers SET internal_name = 'New', updated_at = ${LATER}`;
    expect((await row()).time).toBe(LATER);
    await expectDerivedToAgree(sql());
  });
});

describe('the item is not written', () => {
  it.each([
    ['when a number is written as it is', 'UPDATE branded_phone_numbers SET internal_name = internal_name'],
    ['when a writer gives an earlier time', `UPDATE branded_phone_numbers SET updated_at = '2020-01-01T00:00:00Z'`],
    ['when an entry is written as it is', 'UPDATE carrier_statuses SET carrier = carrier'],
    ['when its business profile changes', `UPDATE business_profiles SET business_name = 'New'`],
  ])('%s', async (_what, statement) => {
    const before = await row();
    await sql().unsafe(statement);
    expect(await row()).toEqual(before);
    await expectDerivedToAgree(sql());
  });
});
