/** When updatedAt of a number changes, and to which time. */
import { beforeEach, describe, expect, it } from 'vitest';
import { useDatabase } from '../support/database.js';
import { expectDerivedToAgree } from '../support/derived.js';
import { entryWith, numberWith, PROFILES, write } from '../support/numbers.js';

const database = useDatabase();
const PHONE = '+14155550123';
const BEFORE = '2026-02-03T16:49:02.748Z';
const LATER = '2126-02-03T16:49:02.748Z';
const LATEST = '9999-12-31T23:59:59.999Z';

/** The item of the only number, with its version in the table. */
const row = async () => {
  const [found] = await database.sql`SELECT rfc3339(updated_at) AS time, xmin, ctid FROM items`;
  return found as { time: string; xmin: string; ctid: string };
};

beforeEach(async () => {
  await database.sql`TRUNCATE branded_phone_numbers, business_profiles CASCADE`;
  const carrierStatuses = [entryWith('AT&T', 'brandedCallerId', 'approved.optIn')];
  await write(database.drizzle, [numberWith({ phoneNumber: PHONE, updatedAt: BEFORE, carrierStatuses })]);
  expect((await row()).time).toBe(BEFORE);
});

describe('updatedAt moves forward, whichever program writes,', () => {
  it.each([
    ['an entry changes its status', `UPDATE carrier_statuses SET detailed_status = 'rejected.optIn'`],
    [
      'an entry is added',
      `INSERT INTO carrier_statuses VALUES ('${PHONE}', 'Verizon', 'brandedCallerId', 'approved.optIn')`,
    ],
    ['an entry is deleted', 'DELETE FROM carrier_statuses'],
    ['all entries are truncated', 'TRUNCATE carrier_statuses'],
    ['the internal name changes', `UPDATE branded_phone_numbers SET internal_name = 'New'`],
    ['its business profile is replaced', `UPDATE branded_phone_numbers SET business_profile_id = '${PROFILES[1]?.id}'`],
    ['the id changes', 'UPDATE branded_phone_numbers SET id = gen_random_uuid()'],
    [
      'a writer sets a new name and an earlier time',
      `UPDATE branded_phone_numbers SET internal_name = 'New', updated_at = '2020-01-01T00:00:00Z'`,
    ],
  ])('when %s', async (_what, statement) => {
    await database.sql.unsafe(statement);
    const { time } = await row();
    expect(time > BEFORE).toBe(true);
    expect(Math.abs(Date.now() - Date.parse(time))).toBeLessThan(60_000);
    await expectDerivedToAgree(database.sql);
  });

  const SET_STATUS = `UPDATE carrier_statuses SET detailed_status = 'rejected.optIn'`;
  const SET_NAME = `UPDATE branded_phone_numbers SET internal_name = 'New'`;
  const setTime = (time: string) => `UPDATE branded_phone_numbers SET updated_at = '${time}'`;
  it.each([
    ['by a millisecond if it is in the future', [setTime(LATER), SET_STATUS], '2126-02-03T16:49:02.749Z'],
    ['at most to the latest allowed time', [setTime(LATEST), SET_STATUS, SET_NAME], LATEST],
    ['to a later time that a writer sets', [`${SET_NAME}, updated_at = '${LATER}'`], LATER],
    [
      'never back, even if a write repairs an item that was changed without the triggers',
      [
        `SET LOCAL session_replication_role = replica; UPDATE items SET status = 'rejected'`,
        setTime('2020-01-01T00:00:00Z'),
      ],
      BEFORE,
    ],
  ])('%s', async (_what, statements, expected) => {
    for (const statement of statements) await database.sql.unsafe(statement);
    expect((await row()).time).toBe(expected);
    await expectDerivedToAgree(database.sql);
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
    await database.sql.unsafe(statement);
    expect(await row()).toEqual(before);
    await expectDerivedToAgree(database.sql);
  });
});
