/** When updatedAt of a number changes, and to which time. */
import type { Sql } from 'postgres';
import { beforeEach, describe, expect, it } from 'vitest';
import { expectDerivedToAgree } from '../support/derived.js';
import { entryWith, numberWith, PROFILES, write } from '../support/numbers.js';
import { useService } from '../support/service.js';

const service = useService();
const PHONE = '+14155550123';
const BEFORE = '2026-02-03T16:49:02.748Z';
const LATER = '2126-02-03T16:49:02.748Z';

const sql = () => service.database.$client as unknown as Sql;
/** The item of the only number, with its version in the table. */
const row = async () => {
  const [found] = await sql()`
    SELECT rfc3339(updated_at) AS time, xmin, ctid FROM items`;
  return found as { time: string; xmin: string; ctid: string };
};

beforeEach(async () => {
  await sql()`TRUNCATE branded_phone_numbers, business_profiles CASCADE`;
  const carrierStatuses = [entryWith('AT&T', 'brandedCallerId', 'approved.optIn')];
  await write(service.database, [numberWith({ phoneNumber: PHONE, updatedAt: BEFORE, carrierStatuses })]);
  expect((await row()).time).toBe(BEFORE);
});

describe('updatedAt moves forward, whichever program writes,', () => {
  it.each([
    ['an entry changes its status', `UPDATE carrier_statuses SET detailed_status = 'rejected.optIn'`],
    ['an entry changes its time', `UPDATE carrier_statuses SET created_at = '2026-01-01T00:00:00Z'`],
    [
      'an entry is added',
      `INSERT INTO carrier_statuses VALUES ('${PHONE}', 'Verizon', 'brandedCallerId', 'approved.optIn')`,
    ],
    ['an entry is deleted', 'DELETE FROM carrier_statuses'],
    ['all entries are truncated', 'TRUNCATE carrier_statuses'],
    ['the internal name changes', `UPDATE branded_phone_numbers SET internal_name = 'New'`],
    ['a branding name is removed', 'UPDATE branded_phone_numbers SET branding_name_short = NULL'],
    ['the reporting group changes', `UPDATE branded_phone_numbers SET reporting_group = 'New'`],
    ['its business profile is replaced', `UPDATE branded_phone_numbers SET business_profile_id = '${PROFILES[1]?.id}'`],
    ['the id changes', 'UPDATE branded_phone_numbers SET id = gen_random_uuid()'],
    ['createdAt changes', `UPDATE branded_phone_numbers SET created_at = '2026-01-01T00:00:00Z'`],
    [
      'a writer sets a new name and an earlier time',
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

  it('but not past the latest allowed time, at which the number can still be changed', async () => {
    const LATEST = '9999-12-31T23:59:59.999Z';
    await sql()`UPDATE branded_phone_numbers SET updated_at = ${LATEST}`;
    await sql()`UPDATE carrier_statuses SET detailed_status = 'rejected.optIn'`;
    await sql()`UPDATE branded_phone_numbers SET internal_name = 'New'`;
    expect((await row()).time).toBe(LATEST);
    expect((await sql()`SELECT internal_name FROM items`)[0]).toEqual({ internal_name: 'New' });
    await expectDerivedToAgree(sql());
  });

  it('and not back, even if a write repairs an item that was changed without the triggers', async () => {
    await sql().begin(async (transaction) => {
      await transaction`SET LOCAL session_replication_role = replica`;
      await transaction`UPDATE items SET status = 'rejected'`;
    });
    await sql()`UPDATE branded_phone_numbers SET updated_at = '2020-01-01T00:00:00Z'`;
    expect((await row()).time).toBe(BEFORE);
    await expectDerivedToAgree(sql());
  });

  it('to the later time that a writer sets', async () => {
    await sql()`UPDATE branded_phone_numbers SET internal_name = 'New', updated_at = ${LATER}`;
    expect((await row()).time).toBe(LATER);
    await expectDerivedToAgree(sql());
  });
});

describe('an item is not written', () => {
  it.each([
    [
      'when a number is updated to the values that it has',
      'UPDATE branded_phone_numbers SET internal_name = internal_name',
    ],
    ['when a writer sets an earlier time', `UPDATE branded_phone_numbers SET updated_at = '2020-01-01T00:00:00Z'`],
    ['when an entry is updated to the values that it has', 'UPDATE carrier_statuses SET carrier = carrier'],
    ['when the name of its business profile changes', `UPDATE business_profiles SET business_name = 'New'`],
  ])('%s', async (_what, statement) => {
    const before = await row();
    await sql().unsafe(statement);
    expect(await row()).toEqual(before);
    await expectDerivedToAgree(sql());
  });
});
