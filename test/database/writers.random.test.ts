/** Writers at once, with random statements and transactions: what is derived agrees, and updatedAt moves forward. */
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import type { Sql } from 'postgres';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import type { BrandedPhoneNumber } from '../../generated/types/models/index.js';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { causeOf, codeOf } from '../../src/database/errors.js';
import { deriveAll } from '../../src/operator/numbers/check.js';
import { deleteNumbers } from '../../src/operator/numbers/delete.js';
import { importNumbers } from '../../src/operator/numbers/import.js';
import { InputError } from '../../src/operator/numbers/lines.js';
import { connectTo } from '../support/connection.js';
import { createDatabase } from '../support/database.js';
import { expectDerivedToAgree, items } from '../support/derived.js';
import { DETAILED_STATUSES, FEATURES, PROFILES } from '../support/numbers.js';

/** On a slow machine, the time limit ends the test before it has done all, but not before it has done the fewest. */
const RUNS = 100 * inject('tries');
const FEWEST_RUNS = 20;
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

interface Write {
  writer: number;
  statement: string;
}

let url: string;
let observer: Sql;
let writers: { session: Sql; pid: number }[];
let drop: () => Promise<void>;

beforeAll(async () => {
  ({ url, drop } = await createDatabase());
  const connect = () => connectTo(url);
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
async function perform(writes: Write[]): Promise<void> {
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

async function agrees(first: Write[], then: Write[]): Promise<void> {
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
}

test('two concurrent writers leave the read model right, and updatedAt moves forward with each change', async () => {
  let latest = Promise.resolve();
  const property = fc.asyncProperty(
    fc.array(write, { maxLength: 12 }),
    fc.array(write, { maxLength: 25, minLength: 5 }),
    (first, then) => {
      latest = agrees(first, then);
      return latest;
    },
  );
  await fc.assert(property, { numRuns: FEWEST_RUNS });
  await fc.assert(property, { numRuns: RUNS - FEWEST_RUNS, interruptAfterTimeLimit: TIME_LIMIT_MS });
  // The run that the time limit interrupts goes on, and would meet the next test.
  await latest;
}, 120_000);

/** To run more: WRITER_TRANSACTIONS=20000 npx vitest run --project soak test/database/writers.random.test.ts */
const TRANSACTIONS = Number(process.env.WRITER_TRANSACTIONS ?? 200 * inject('tries'));
const WRITERS = 6;
const transaction = fc.record({
  isolation: fc.constantFrom('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'),
  statements: fc.array(statement, { minLength: 1, maxLength: 4 }),
  end: fc.oneof({ weight: 4, arbitrary: fc.constant('COMMIT') }, fc.constant('ROLLBACK')),
});
const line = fc.record({
  phoneNumber: phone,
  businessProfile: fc.constantFrom(...PROFILES),
  internalName: fc.constantFrom(null, 'Imported'),
  brandingNameShort: fc.constant(null),
  brandingNameLong: fc.constant(null),
  reportingGroup: fc.constantFrom(null, 'Imported'),
  carrierStatuses: fc.uniqueArray(fc.record({ carrier, feature, detailedStatus }), {
    maxLength: 4,
    selector: ({ carrier, feature }) => carrier + feature,
  }),
});
const lines = fc.uniqueArray(line, { maxLength: 4, selector: ({ phoneNumber }) => phoneNumber });
const KILLED = /^(57P01|CONNECTION_\w+|ECONNRESET|EPIPE)$/;

test('random writers leave the read model right beside imports, deletes and checks, some of them killed', async () => {
  const seed = Date.now();
  const transactions = fc.sample(transaction, { numRuns: TRANSACTIONS, seed });
  const [imported, deleted] = [fc.sample(lines, { numRuns: 1000, seed }), fc.sample(phone, { numRuns: 1000, seed })];
  const database = openDatabase(url);
  const counts = { committed: 0, refused: 0, imported: 0, deleted: 0, checked: 0, killed: 0 };
  const faults: unknown[] = [];
  let isOver = false;
  const forgive = (error: unknown) => {
    const code = codeOf(causeOf(error));
    if (KILLED.test(code)) counts.killed++;
    else if (REFUSALS.has(code) || error instanceof InputError) counts.refused++;
    else faults.push(error);
  };
  const connect = async () => {
    const session = connectTo(url);
    await session`SET deadlock_timeout = '20ms'`;
    return session;
  };
  const writeAll = async () => {
    let session = await connect().catch(connect);
    for (let next = transactions.pop(); next; next = transactions.pop()) {
      const { isolation, statements, end } = next;
      try {
        await session.unsafe([`BEGIN ISOLATION LEVEL ${isolation}`, ...statements, end].join(';'));
        counts.committed++;
      } catch (error) {
        forgive(error);
        // postgres.js may wait for ever for what is asked just after a session was ended.
        await session.end({ timeout: 0 });
        session = await connect().catch(connect);
      }
    }
    await session.end();
  };
  const repeat = async (name: 'imported' | 'deleted' | 'checked', work: (i: number) => Promise<unknown>) => {
    for (let i = 0; !isOver; i++) {
      await work(i).then(() => counts[name]++, forgive);
      await sleep(100);
    }
  };
  /** Ends a session in the middle of what it does. */
  const kill = async () => {
    while (!isOver) {
      await observer`
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle' ORDER BY random() LIMIT 1`;
      await sleep(500);
    }
  };
  await observer`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`;
  for (const { id, businessName, status } of PROFILES) {
    await observer`INSERT INTO business_profiles VALUES (${id}, ${businessName}, ${status})`;
  }
  const bytes = (items: unknown[]) => Readable.from([Buffer.from(items.map((each) => `${each}\n`).join(''))]);
  const beside = [
    repeat('imported', (i) =>
      importNumbers(database, bytes((imported[i % 1000] ?? []).map((each) => JSON.stringify(each)))),
    ),
    repeat('deleted', (i) => deleteNumbers(database, bytes([deleted[i % 1000]]))),
    repeat('checked', async (i) => {
      const differences = await deriveAll(database, { keep: i % 2 === 0 });
      if (differences.length > 0) faults.push(differences);
    }),
    kill(),
  ];
  await Promise.all(Array.from({ length: WRITERS }, writeAll));
  isOver = true;
  await Promise.all(beside);
  await closeDatabase(database);
  expect(faults, `seed ${seed}`).toEqual([]);
  await expectDerivedToAgree(observer);
  expect(Math.min(...Object.values(counts)), JSON.stringify(counts)).toBeGreaterThan(0);
}, 3_600_000);
