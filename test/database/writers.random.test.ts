/** Two writers at once, with random statements and transactions: what is derived agrees, and updatedAt moves forward. */
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import type { Sql } from 'postgres';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import type { BrandedPhoneNumber } from '../../generated/types/models/index.js';
import { codeOf } from '../../src/database/errors.js';
import { connectTo } from '../connection.js';
import { createDatabase } from '../database.js';
import { DETAILED_STATUSES, FEATURES, PROFILES } from '../numbers.js';
import { expectDerivedToAgree, items } from './derived.js';

/** A slow machine completes fewer. */
const RUNS = 100 * inject('tries');
const TIME_LIMIT_MS = 5_000 * inject('tries');

/** Few of each, so that two writers collide often. */
const phone = fc.constantFrom('+141', '+142', '+143', '+1431');
const carrier = fc.constantFrom('AT&T', 'T-Mobile', 'Été "1"');
const feature = fc.constantFrom(...FEATURES);
const detailedStatus = fc.constantFrom(...DETAILED_STATUSES);
const profile = fc.constantFrom(...PROFILES.map(({ id }) => id));
const text = fc.constantFrom('NULL', `'Control'`, `'A "B" \\ C'`);
const time = fc.constantFrom('2020-01-01T00:00:00Z', '2026-02-03T16:49:02.7485Z', '2126-02-03T16:49:02Z');
const NUMBER = 'branded_phone_numbers (phone_number, business_profile_id, internal_name, reporting_group, updated_at)';

const statement = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.tuple(phone, carrier, feature, detailedStatus).map(
      ([phone, carrier, feature, detailedStatus]) =>
        `INSERT INTO carrier_statuses VALUES ('${phone}', '${carrier}', '${feature}', '${detailedStatus}')
       ON CONFLICT (phone_number, carrier, feature) DO UPDATE SET detailed_status = excluded.detailed_status`,
    ),
  },
  {
    weight: 4,
    arbitrary: fc.tuple(phone, profile, text, text, time).map(
      ([phone, profile, name, group, time]) =>
        `INSERT INTO ${NUMBER} VALUES ('${phone}', '${profile}', ${name}, ${group}, '${time}')
       ON CONFLICT (phone_number) DO UPDATE SET internal_name = excluded.internal_name, updated_at = excluded.updated_at`,
    ),
  },
  fc.tuple(profile, text).map(
    ([profile, group]) =>
      `INSERT INTO ${NUMBER} SELECT '+14' || i, '${profile}', NULL, ${group}, now() FROM generate_series(1, 3) AS i
       ON CONFLICT DO NOTHING`,
  ),
  fc.tuple(phone, profile, text).map(
    ([phone, profile, group]) =>
      `UPDATE branded_phone_numbers SET business_profile_id = '${profile}', reporting_group = ${group}
       WHERE phone_number >= '${phone}'`,
  ),
  fc
    .tuple(phone, time)
    .map(([phone, time]) => `UPDATE branded_phone_numbers SET updated_at = '${time}' WHERE phone_number = '${phone}'`),
  fc
    .tuple(phone, phone)
    .map(([from, to]) => `UPDATE branded_phone_numbers SET phone_number = '${to}' WHERE phone_number = '${from}'`),
  phone.map((phone) => `DELETE FROM branded_phone_numbers WHERE phone_number = '${phone}'`),
  fc
    .tuple(carrier, detailedStatus)
    .map(
      ([carrier, detailedStatus]) =>
        `UPDATE carrier_statuses SET detailed_status = '${detailedStatus}' WHERE carrier = '${carrier}'`,
    ),
  fc
    .tuple(carrier, carrier)
    .map(([from, to]) => `UPDATE carrier_statuses SET carrier = '${to}' WHERE carrier = '${from}'`),
  fc
    .tuple(phone, phone)
    .map(([from, to]) => `UPDATE carrier_statuses SET phone_number = '${to}' WHERE phone_number = '${from}'`),
  fc
    .tuple(phone, time)
    .map(([phone, time]) => `UPDATE carrier_statuses SET created_at = '${time}' WHERE phone_number = '${phone}'`),
  fc
    .tuple(phone, feature)
    .map(
      ([phone, feature]) => `DELETE FROM carrier_statuses WHERE phone_number = '${phone}' AND feature = '${feature}'`,
    ),
  fc.tuple(carrier, detailedStatus).map(
    ([carrier, detailedStatus]) =>
      `MERGE INTO carrier_statuses AS entry
       USING branded_phone_numbers AS number
       ON entry.phone_number = number.phone_number AND carrier = '${carrier}' AND feature = 'spamRemediation'
       WHEN MATCHED AND detailed_status = '${detailedStatus}' THEN DELETE
       WHEN MATCHED THEN UPDATE SET detailed_status = '${detailedStatus}'
       WHEN NOT MATCHED THEN INSERT VALUES (number.phone_number, '${carrier}', 'spamRemediation', '${detailedStatus}')`,
  ),
  fc.tuple(phone, text).map(
    ([phone, name]) =>
      `WITH gone AS (DELETE FROM carrier_statuses WHERE phone_number = '${phone}')
       UPDATE branded_phone_numbers SET internal_name = ${name} WHERE phone_number = '${phone}'`,
  ),
  fc.tuple(phone, profile, carrier, detailedStatus, time).map(
    ([phone, profile, carrier, detailedStatus, time]) =>
      `WITH number AS (INSERT INTO ${NUMBER} VALUES ('${phone}', '${profile}', NULL, NULL, '${time}'))
       INSERT INTO carrier_statuses VALUES ('${phone}', '${carrier}', 'spamRemediation', '${detailedStatus}')`,
  ),
  fc
    .tuple(profile, text)
    .map(
      ([profile, name]) =>
        `UPDATE business_profiles SET business_name = coalesce(${name}, 'New') WHERE id = '${profile}'`,
    ),
  fc.constantFrom('TRUNCATE carrier_statuses', 'TRUNCATE branded_phone_numbers CASCADE'),
);
const control = fc.oneof(
  { weight: 3, arbitrary: fc.constant('BEGIN') },
  fc.constantFrom(
    'BEGIN ISOLATION LEVEL REPEATABLE READ',
    'BEGIN ISOLATION LEVEL SERIALIZABLE',
    'SAVEPOINT here',
    'ROLLBACK TO here',
    'ROLLBACK',
  ),
  { weight: 3, arbitrary: fc.constant('COMMIT') },
);
/** How PostgreSQL refuses a writer that is wrong or too late; any other error is our fault. */
const REFUSALS = new Map([
  ['0A000', 'TRUNCATE with an old snapshot'],
  ['23001', 'another phone number'],
  ['23503', 'an entry without a number'],
  ['23505', 'a phone number, or an entry, twice'],
  ['25001', 'an isolation level in the middle of a transaction'],
  ['25P01', 'a savepoint outside of a transaction'],
  ['25P02', 'anything after an error'],
  ['3B001', 'no such savepoint'],
  ['40001', 'an old snapshot'],
  ['40P01', 'a deadlock'],
  ['21000', 'a row twice in one statement'],
]);

const write = fc.record({
  writer: fc.constantFrom(0, 1),
  statement: fc.oneof({ weight: 2, arbitrary: statement }, control),
});

let observer: Sql;
let writers: { session: Sql; pid: number }[];
let drop: () => Promise<void>;

beforeAll(async () => {
  const created = await createDatabase();
  drop = created.drop;
  const connect = () => connectTo(created.url);
  observer = connect();
  writers = await Promise.all(
    [connect(), connect()].map(async (session) => {
      await session`SET deadlock_timeout = '20ms'`;
      const [row] = await session`SELECT pg_backend_pid() AS pid`;
      return { session, pid: row?.pid };
    }),
  );
});
afterAll(async () => {
  await Promise.all([observer, ...writers.map(({ session }) => session)].map((each) => each.end()));
  await drop();
});

/** Runs the statements, each once the one before has ended or waits for a lock; then commits what is left. */
async function perform(writes: { writer: number; statement: string }[]): Promise<void> {
  const faults: unknown[] = [];
  const last = writers.map(() => Promise.resolve());
  const left = writers.map(() => 0);
  for (const { writer, statement } of [
    ...writes,
    { writer: 0, statement: 'COMMIT' },
    { writer: 1, statement: 'COMMIT' },
  ]) {
    const { session, pid } = writers[writer] as (typeof writers)[number];
    const run = async () => {
      await session.unsafe(statement).catch((error) => {
        if (!REFUSALS.has(codeOf(error))) faults.push(error);
      });
      left[writer] = (left[writer] ?? 0) - 1;
    };
    left[writer] = (left[writer] ?? 0) + 1;
    last[writer] = last[writer]?.then(run) ?? Promise.reject();
    for (let isWaiting = false; left[writer] && !isWaiting; ) {
      await Promise.race([last[writer], sleep(2)]);
      const [row] = await observer`SELECT wait_event_type = 'Lock' AS waits FROM pg_stat_activity WHERE pid = ${pid}`;
      isWaiting = row?.waits;
    }
  }
  await Promise.all(last);
  expect(faults).toEqual([]);
}

/** What updatedAt covers: all but the names of the business profile. */
const shown = ({ updatedAt: _time, businessProfile, ...number }: BrandedPhoneNumber) => [number, businessProfile.id];

test('Whatever two writers do at once, all that is derived agrees, and updatedAt moves forward with each change', async () => {
  const property = fc.asyncProperty(
    fc.array(write, { maxLength: 12 }),
    fc.array(write, { maxLength: 25, minLength: 5 }),
    async (first, then) => {
      await observer`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`;
      for (const { id, businessName, status } of PROFILES) {
        await observer`INSERT INTO business_profiles VALUES (${id}, ${businessName}, ${status})`;
      }
      await perform(first);
      const before = new Map((await items(observer)).map((item) => [item.id, item]));
      await perform(then);
      await expectDerivedToAgree(observer);
      for (const after of await items(observer)) {
        const old = before.get(after.id);
        if (!old) continue;
        expect(after.updatedAt >= old.updatedAt, `${after.phoneNumber} goes back from ${old.updatedAt}`).toBe(true);
        if (after.updatedAt === old.updatedAt) expect(shown(after)).toEqual(shown(old));
      }
    },
  );
  await fc.assert(property, { numRuns: RUNS, interruptAfterTimeLimit: TIME_LIMIT_MS });
}, 120_000);
