/**
 * Concurrent writers with random statements and transactions, alone and beside commands: the read model always matches its
 * sources, updatedAt moves forward, and commands do not make a writer fail.
 */
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import type { Sql } from 'postgres';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import type { BrandedPhoneNumber } from '../../generated/types/models/index.js';
import { causeOf, codeOf } from '../../src/database/errors.js';
import { deriveAll } from '../../src/operator/numbers/check.js';
import { deleteNumbers } from '../../src/operator/numbers/delete.js';
import { importNumbers } from '../../src/operator/numbers/import.js';
import { InputError } from '../../src/operator/numbers/lines.js';
import { manyNumbers } from '../operator/numbers/importing.js';
import { connectTo } from '../support/connection.js';
import { type TestConnection as Database, useDatabase } from '../support/database.js';
import { expectDerivedToAgree, items } from '../support/derived.js';
import { ndjson } from '../support/ndjson.js';
import { DETAILED_STATUSES, FEATURES, PROFILES } from '../support/numbers.js';

/** On a slow machine, the time limit ends the test before all its runs, but after the fewest. */
const FEWEST_RUNS = 20;
const RUNS = Math.max(FEWEST_RUNS, 100 * inject('tries'));
const TIME_LIMIT_MS = 5_000 * inject('tries');

/** Few values of each, so that writers collide often. */
const phone = fc.constantFrom('+141', '+142', '+143', '+1431');
const carrier = fc.constantFrom('AT&T', 'T-Mobile', 'Été "1"');
const feature = fc.constantFrom(...FEATURES);
const detailedStatus = fc.constantFrom(...DETAILED_STATUSES);
const profile = fc.constantFrom(...PROFILES.map(({ id }) => id));
const text = fc.constantFrom('NULL', `'Control'`, `'A "B" \\ C'`);
const time = fc.constantFrom('2020-01-01T00:00:00Z', '2026-02-03T16:49:02.7485Z', '2126-02-03T16:49:02Z');
const NUMBER = fc.constant(
  'branded_phone_numbers (phone_number, business_profile_id, internal_name, reporting_group, updated_at)',
);

/** Returns an arbitrary of the SQL with a random value for each placeholder. */
const withRandom = (sql: TemplateStringsArray, ...values: fc.Arbitrary<string>[]) =>
  fc.tuple(...values).map((sample) => String.raw({ raw: sql.raw }, ...sample));

const statement = fc.oneof(
  {
    weight: 4,
    arbitrary: withRandom`
      INSERT INTO carrier_statuses VALUES ('${phone}', '${carrier}', '${feature}', '${detailedStatus}')
      ON CONFLICT (phone_number, carrier, feature) DO UPDATE SET detailed_status = excluded.detailed_status`,
  },
  {
    weight: 4,
    arbitrary: withRandom`
      INSERT INTO ${NUMBER} VALUES ('${phone}', '${profile}', ${text}, ${text}, '${time}')
      ON CONFLICT (phone_number) DO UPDATE SET internal_name = excluded.internal_name, updated_at = excluded.updated_at`,
  },
  withRandom`
    INSERT INTO ${NUMBER} SELECT '+14' || i, '${profile}', NULL, ${text}, now() FROM generate_series(1, 3) AS i
    ON CONFLICT DO NOTHING`,
  withRandom`
    UPDATE branded_phone_numbers SET business_profile_id = '${profile}', reporting_group = ${text}
    WHERE phone_number >= '${phone}'`,
  withRandom`UPDATE branded_phone_numbers SET updated_at = '${time}' WHERE phone_number = '${phone}'`,
  withRandom`UPDATE branded_phone_numbers SET phone_number = '${phone}' WHERE phone_number = '${phone}'`,
  withRandom`DELETE FROM branded_phone_numbers WHERE phone_number = '${phone}'`,
  withRandom`UPDATE carrier_statuses SET detailed_status = '${detailedStatus}' WHERE carrier = '${carrier}'`,
  withRandom`UPDATE carrier_statuses SET carrier = '${carrier}' WHERE carrier = '${carrier}'`,
  withRandom`UPDATE carrier_statuses SET phone_number = '${phone}' WHERE phone_number = '${phone}'`,
  withRandom`UPDATE carrier_statuses SET created_at = '${time}' WHERE phone_number = '${phone}'`,
  withRandom`DELETE FROM carrier_statuses WHERE phone_number = '${phone}' AND feature = '${feature}'`,
  withRandom`
    MERGE INTO carrier_statuses AS entry
    USING (
      SELECT phone_number, '${carrier}' AS carrier, '${detailedStatus}'::detailed_status AS new FROM branded_phone_numbers
    ) AS number
    ON entry.phone_number = number.phone_number AND entry.carrier = number.carrier AND feature = 'spamRemediation'
    WHEN MATCHED AND detailed_status = new THEN DELETE
    WHEN MATCHED THEN UPDATE SET detailed_status = new
    WHEN NOT MATCHED THEN INSERT VALUES (number.phone_number, number.carrier, 'spamRemediation', new)`,
  withRandom`
    WITH given AS (SELECT '${phone}'), deleted AS (DELETE FROM carrier_statuses WHERE phone_number = (TABLE given))
    UPDATE branded_phone_numbers SET internal_name = ${text} WHERE phone_number = (TABLE given)`,
  withRandom`
    WITH number AS (INSERT INTO ${NUMBER} VALUES ('${phone}', '${profile}', NULL, NULL, '${time}') RETURNING phone_number)
    INSERT INTO carrier_statuses SELECT phone_number, '${carrier}', 'spamRemediation', '${detailedStatus}' FROM number`,
  withRandom`UPDATE business_profiles SET business_name = coalesce(${text}, 'New') WHERE id = '${profile}'`,
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
const OLD_SNAPSHOT = '40001';
/** The errors with which PostgreSQL rightly rejects a statement; any other is a fault of ours. */
const REFUSALS = new Map([
  ['0A000', 'TRUNCATE with an old snapshot'],
  ['23001', 'a changed phone number'],
  ['23503', 'an entry without a number'],
  ['23505', 'a phone number, or an entry, twice'],
  ['25001', 'an isolation level in the middle of a transaction'],
  ['25P01', 'a savepoint outside of a transaction'],
  ['25P02', 'anything after an error'],
  ['3B001', 'no such savepoint'],
  [OLD_SNAPSHOT, 'an old snapshot'],
  ['40P01', 'a deadlock'],
  ['21000', 'a row twice in one statement'],
]);

const write = fc.record({
  writer: fc.constantFrom(0, 1),
  statement: fc.oneof({ weight: 2, arbitrary: statement }, control),
});

type Write = { writer: number; statement: string };

const created = useDatabase();
let database: Database;
let observer: Sql;
let writers: { session: Sql; pid: number }[];

beforeAll(async () => {
  ({ drizzle: database, sql: observer } = created);
  const connect = () => connectTo(created.url);
  writers = await Promise.all(
    [connect(), connect()].map(async (session) => {
      await session`SET deadlock_timeout = '20ms'`;
      const [row] = await session`SELECT pg_backend_pid() AS pid`;
      return { session, pid: row?.pid };
    }),
  );
});
afterAll(() => Promise.all(writers.map(({ session }) => session.end())));

/** Removes all rows, and adds the business profiles. */
async function clear(): Promise<void> {
  await observer`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`;
  const profiles = PROFILES.map(({ id, businessName, status }) => ({ id, business_name: businessName, status }));
  await observer`INSERT INTO business_profiles ${observer(profiles)}`;
}

/** Starts each statement once the previous one has ended or waits for a lock; commits what is still open at the end. */
async function perform(writes: Write[]): Promise<void> {
  const faults: unknown[] = [];
  const last = writers.map(() => Promise.resolve());
  const pending = writers.map(() => 0);
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
      pending[writer] = (pending[writer] ?? 0) - 1;
    };
    pending[writer] = (pending[writer] ?? 0) + 1;
    last[writer] = last[writer]?.then(run) ?? Promise.reject();
    for (let isWaiting = false; pending[writer] && !isWaiting; ) {
      await Promise.race([last[writer], sleep(2)]);
      const [row] = await observer`SELECT wait_event_type = 'Lock' AS waits FROM pg_stat_activity WHERE pid = ${pid}`;
      isWaiting = row?.waits;
    }
  }
  await Promise.all(last);
  expect(faults).toEqual([]);
}

/** Returns what moves updatedAt: everything but the names of the business profile. */
const covered = ({ updatedAt: _time, businessProfile, ...number }: BrandedPhoneNumber) => [number, businessProfile.id];

/** Performs both lists, and fails unless the read model is right and `then` moved updatedAt of what it changed. */
async function expectAgreement(first: Write[], then: Write[]): Promise<void> {
  await clear();
  await perform(first);
  const before = new Map((await items(observer)).map((item) => [item.id, item]));
  await perform(then);
  await expectDerivedToAgree(observer);
  for (const after of await items(observer)) {
    const old = before.get(after.id);
    if (!old) continue;
    expect(after.updatedAt >= old.updatedAt, `updatedAt of ${after.phoneNumber} went back`).toBe(true);
    if (after.updatedAt === old.updatedAt) expect(covered(after)).toEqual(covered(old));
  }
}

test('two concurrent writers leave the read model right, and updatedAt moves forward with each change', async () => {
  let latest = Promise.resolve();
  const property = fc.asyncProperty(
    fc.array(write, { maxLength: 12 }),
    fc.array(write, { maxLength: 25, minLength: 5 }),
    (first, then) => {
      latest = expectAgreement(first, then);
      return latest;
    },
  );
  await fc.assert(property, { numRuns: FEWEST_RUNS });
  await fc.assert(property, { numRuns: RUNS - FEWEST_RUNS, interruptAfterTimeLimit: TIME_LIMIT_MS });
  // The run that the time limit interrupts continues; wait for it, or it would disturb the next test.
  await latest;
});

/** To run more: WRITER_TRANSACTIONS=20000 npx vitest run --project soak test/database/writers.random.test.ts */
const TRANSACTIONS = Number(process.env.WRITER_TRANSACTIONS ?? 200 * inject('tries'));
/** With fewer, no session may be found to be ended. */
const FEWEST_TRANSACTIONS = 50;
const ISOLATIONS = ['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'] as const;
type Isolation = (typeof ISOLATIONS)[number];

interface Scenario {
  writers: number;
  transactions: number;
  /** How soon PostgreSQL ends a writer that is in a deadlock. */
  deadlockTimeout: string;
  statementOf(writer: number): fc.Arbitrary<string>;
  /** Commands to repeat; each rejects if something is wrong. */
  commands: Record<string, (i: number) => Promise<unknown>>;
  /** Returns whether a transaction of this isolation, or a command if none is given, may fail with this error. */
  mayFail(error: unknown, isolation?: Isolation): boolean;
  /** Whether random sessions are ended while they run a statement. */
  isKilling?: boolean;
}

/** Runs the transactions of the writers beside the commands, fails on any other error or a wrong read model, and returns counts. */
async function writeBesideCommands(scenario: Scenario): Promise<Record<string, number>> {
  const { writers, transactions, deadlockTimeout, statementOf, commands, mayFail, isKilling } = scenario;
  const seed = Date.now();
  const counts: Record<string, number> = { committed: 0, failed: 0, ...(isKilling ? { killed: 0 } : {}) };
  const count = (what: string, by = 1) => (counts[what] = (counts[what] ?? 0) + by);
  const faults: unknown[] = [];
  const handle = (error: unknown, isolation?: Isolation) =>
    mayFail(error, isolation) ? count('failed') : faults.push(error);
  let isOver = false;

  const connect = async (): Promise<Sql> => {
    const session = connectTo(created.url);
    try {
      await session`SELECT set_config('deadlock_timeout', ${deadlockTimeout}, false)`;
      return session;
    } catch (error) {
      await session.end({ timeout: 0 });
      // The new session, too, may be ended.
      if (isKilling) return connect();
      throw error;
    }
  };
  const writeAs = async (writer: number) => {
    const transaction = fc.record({
      isolation: fc.constantFrom(...ISOLATIONS),
      statements: fc.array(statementOf(writer), { minLength: 1, maxLength: 4 }),
      end: fc.oneof({ weight: 4, arbitrary: fc.constant('COMMIT') }, fc.constant('ROLLBACK')),
    });
    let session = await connect();
    const samples = fc.sample(transaction, { numRuns: Math.ceil(transactions / writers), seed: seed + writer });
    for (const { isolation, statements, end } of samples) {
      try {
        await session.unsafe([`BEGIN ISOLATION LEVEL ${isolation}`, ...statements, end].join(';'));
        count('committed');
      } catch (error) {
        handle(error, isolation);
        // postgres.js may never settle a query that is sent just after its session was ended.
        await session.end({ timeout: 0 });
        session = await connect();
      }
    }
    await session.end();
  };
  const repeat = async ([name, command]: [string, (i: number) => Promise<unknown>]) => {
    for (let i = 0; !isOver; i++, await sleep(20)) {
      await command(i).then(
        () => count(name),
        (error) => handle(error),
      );
    }
  };
  const kill = async () => {
    while (isKilling && !isOver) {
      const killed = await observer`
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle' ORDER BY random() LIMIT 1`;
      count('killed', killed.length);
      // Often none is at work.
      await sleep(killed.length > 0 ? 500 : 20);
    }
  };

  const beside = [...Object.entries(commands).map(repeat), kill()];
  await Promise.all(Array.from({ length: writers }, (_, writer) => writeAs(writer)));
  isOver = true;
  await Promise.all(beside);
  expect(faults, `seed ${seed}`).toEqual([]);
  await expectDerivedToAgree(observer);
  return counts;
}

const bytes = (text: string) => Readable.from([Buffer.from(text)]);
const check = async (keep: boolean) => expect(await deriveAll(database.url, { keep })).toEqual([]);

test('writers of the same numbers, imports, deletes and checks leave the read model right, although some are killed', async () => {
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
  const lines = fc.sample(fc.uniqueArray(line, { maxLength: 4, selector: ({ phoneNumber }) => phoneNumber }), 1000);
  const deleted = fc.sample(phone, 1000);
  await clear();
  const counts = await writeBesideCommands({
    writers: 6,
    transactions: Math.max(FEWEST_TRANSACTIONS, TRANSACTIONS),
    deadlockTimeout: '20ms',
    statementOf: () => statement,
    commands: {
      imported: (i) => importNumbers(database.url, bytes(ndjson(lines[i % 1000] ?? []))),
      deleted: (i) => deleteNumbers(database.url, bytes(`${deleted[i % 1000]}`)),
      checked: (i) => check(i % 2 === 0),
    },
    mayFail(error) {
      const code = codeOf(causeOf(error));
      return (
        error instanceof InputError || REFUSALS.has(code) || /^(57P01|CONNECTION_\w+|ECONNRESET|EPIPE)$/.test(code)
      );
    },
    isKilling: true,
  });
  expect(Math.min(...Object.values(counts)), JSON.stringify(counts)).toBeGreaterThan(0);
}, 3_600_000);

test('imports, deletes and checks cause no deadlock or lock timeout of writers that write different numbers', async () => {
  const WRITERS = 4;
  const numbers = manyNumbers(60);
  const named = (name: string) => bytes(ndjson(numbers.map((item) => ({ ...item, reportingGroup: name }))));
  await clear();
  await importNumbers(database.url, named('Before'));
  // Writers that add terms in several statements may deadlock with each other (docs/operations.md).
  await observer`
    INSERT INTO terms
    SELECT term_id(carrier, feature, detailed_status, status), carrier, feature, detailed_status, status
    FROM (SELECT DISTINCT carrier FROM terms) AS known, unnest(enum_range(NULL::feature)) AS feature,
      unnest(enum_range(NULL::detailed_status)) AS detailed_status, unnest(enum_range(NULL::status)) AS status
    ON CONFLICT DO NOTHING`;
  const { failed: _failed, ...counts } = await writeBesideCommands({
    writers: WRITERS,
    transactions: 5 * TRANSACTIONS,
    // Half of what the commands' sessions have: in a deadlock that lasts, the writer is ended.
    deadlockTimeout: '500ms',
    statementOf: (writer) =>
      fc
        .record({
          table: fc.constantFrom('branded_phone_numbers', 'carrier_statuses'),
          index: fc.nat(numbers.length / WRITERS - 1),
          status: detailedStatus,
          defer: fc.constantFrom('on', 'off'),
        })
        .map(({ table, index, status, defer }) => {
          const set = table === 'carrier_statuses' ? `detailed_status = '${status}'` : `internal_name = '${status}'`;
          return `SET LOCAL branded_phone_numbers.defer = '${defer}';
            UPDATE ${table} SET ${set} WHERE phone_number = '+1${2_000_000_000 + index * WRITERS + writer}'`;
        }),
    commands: {
      imported: (i) => importNumbers(database.url, named(`First ${i}`)),
      importedToo: (i) => importNumbers(database.url, named(`Second ${i}`)),
      deleted(i) {
        const phoneNumbers = numbers.slice(i % 50, (i % 50) + 10).map(({ phoneNumber }) => `${phoneNumber}\n`);
        return deleteNumbers(database.url, bytes(phoneNumbers.join('')), { ifExists: true });
      },
      checked: () => check(true),
    },
    // A command may meet a number that another deleted, or its id; any program may give a writer an old snapshot.
    mayFail: (error, isolation = 'READ COMMITTED') =>
      error instanceof InputError || (isolation !== 'READ COMMITTED' && codeOf(error) === OLD_SNAPSHOT),
  });
  expect(Math.min(...Object.values(counts)), JSON.stringify(counts)).toBeGreaterThan(0);
}, 3_600_000);
