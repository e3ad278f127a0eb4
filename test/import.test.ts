/** The command `import`, from the stream to the tables: whole files or nothing, and every fault told by its line. */
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { TransactionSql } from 'postgres';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { DetailedStatus, Feature } from '../generated/types/models/index.js';
import { closeDatabase, type Database, openDatabase } from '../src/database.js';
import { filterOf } from '../src/filter.js';
import { ImportError, importNumbers } from '../src/import.js';
import { preparePages } from '../src/query.js';
import { createDatabase } from './database.js';

let database: Database;
let databaseUrl: string;
let close: () => Promise<void>;

beforeAll(async () => {
  const { url, drop } = await createDatabase();
  databaseUrl = url;
  database = openDatabase(url);
  close = async () => {
    await closeDatabase(database);
    await drop();
  };
});
afterAll(() => close());
beforeEach(() => database.$client`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`);

const PROFILE = { id: '6513270e-269e-4d37-b2a7-4de452e6b438', businessName: 'Circle Bank', status: 'approved' };
const ID = '0192f1c0-5b7e-7c3a-9d52-3f1f8a6e0b11';

const number = (changes: object = {}) => ({
  phoneNumber: '+14155550123',
  businessProfile: PROFILE,
  internalName: 'Main Line',
  brandingNameShort: 'Circle Bank',
  brandingNameLong: 'Circle Bank Financial',
  reportingGroup: null,
  carrierStatuses: [entry()],
  ...changes,
});
const entry = (changes: object = {}) => ({
  carrier: 'AT&T',
  feature: 'brandedCallerId',
  detailedStatus: 'approved.optIn',
  ...changes,
});
const without = (item: object, member: string) =>
  Object.fromEntries(Object.entries(item).filter(([name]) => name !== member));

/** A file of many numbers, of every shape: 0 to 7 entries, all statuses, awkward names. */
const manyNumbers = (count: number) =>
  Array.from({ length: count }, (_, i) =>
    number({
      phoneNumber: `+1${2_000_000_000 + ((i * 7919) % count)}`,
      businessProfile: {
        ...PROFILE,
        id: `00000000-0000-4000-8000-00000000000${i % 10}`,
        businessName: `Company ${i % 10}`,
      },
      internalName: ['Main "Line"', 'back\\slash \\N', 'Line, {braces}', "O'Neil 🏦", null][i % 5],
      reportingGroup: ['Control', 'Sales + Service', null][i % 3],
      carrierStatuses: Array.from({ length: i % 8 }, (_, j) => ({
        carrier: ['T-Mobile', 'AT&T', '"C\\Spire"', 'NULL'][j >> 1],
        feature: Object.values(Feature)[j % 2],
        detailedStatus: Object.values(DetailedStatus)[(i + j) % 9],
        createdAt: new Date(Date.UTC(2026, 0, 1) + i * 1000 + j).toISOString(),
      })),
    }),
  );

const ndjson = (items: unknown[]) => items.map((item) => `${JSON.stringify(item)}\n`).join('');

/** Imports text (or bytes, or items as lines), in chunks that cut lines and characters anywhere. */
const run = (file: string | Buffer | object[], options = {}, chunkLength = 1000) => {
  const bytes = Buffer.from(Array.isArray(file) ? ndjson(file) : file);
  const chunks = Array.from({ length: Math.ceil(bytes.length / chunkLength) }, (_, i) =>
    bytes.subarray(i * chunkLength, (i + 1) * chunkLength),
  );
  return importNumbers(database, Readable.from(chunks), options);
};

/** What the import says is wrong with the file. */
const faultsOf = async (file: string | Buffer | object[]) => {
  const error = await run(file).then(
    () => expect.fail('the import took the file'),
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof ImportError)) throw error;
  expect(await stored()).toEqual([]);
  return error.faults.map(({ line, reason }) => `${line}: ${reason}`);
};
const faultOf = async (item: unknown) => (await faultsOf(`${JSON.stringify(item)}\n`)).join('\n');

/** All numbers, as an answer shows them. */
const stored = () => database.$client`
  SELECT number.phone_number, number.id, profile.business_name, profile.status AS profile_status, internal_name,
    branding_name_short, branding_name_long, reporting_group, number.status,
    ('{"id":0' || item_tail)::json -> 'carrierStatuses' AS carrier_statuses,
    rfc3339(created_at) AS created_at, rfc3339(updated_at) AS updated_at
  FROM branded_phone_numbers AS number JOIN business_profiles AS profile ON profile.id = business_profile_id
  ORDER BY phone_number`;
const one = async () => (await stored())[0] ?? expect.fail('nothing is stored');

/** Every row of every table with its version: equal only if nothing was written between. */
const versions = async () => {
  const tables = ['business_profiles', 'branded_phone_numbers', 'carrier_statuses', 'listings'];
  return Promise.all(
    tables.map((table) => database.$client.unsafe(`SELECT ctid, xmin, * FROM ${table} ORDER BY ctid`)),
  );
};
/** What the triggers should have listed, from the entries themselves. */
const listedWrongly = () => database.$client`
  WITH truth AS (
    SELECT phone_number, carrier, feature, detailed_status, number.status, business_profile_id, reporting_group, internal_name
    FROM carrier_statuses JOIN branded_phone_numbers AS number USING (phone_number)
    UNION ALL
    SELECT phone_number, NULL, NULL, NULL, status, business_profile_id, reporting_group, internal_name
    FROM branded_phone_numbers
  ), listed AS (
    SELECT phone_number, carrier, feature, detailed_status, status, business_profile_id, reporting_group, internal_name
    FROM listings JOIN facets ON facets.id = facet_id
  )
  (TABLE truth EXCEPT ALL TABLE listed) UNION ALL (TABLE listed EXCEPT ALL TABLE truth)`;

describe('what is imported', () => {
  test('is stored with every member', async () => {
    const times = { createdAt: '2026-02-03T16:49:02.748Z', updatedAt: '2026-03-03T16:49:02.748Z' };
    const carrierStatuses = [
      entry({ carrier: 'Verizon', detailedStatus: 'rejected.optIn', createdAt: '2026-02-04T00:00:00.000Z' }),
      entry({ feature: 'spamRemediation', createdAt: '2026-02-03T16:49:03.043Z' }),
    ];
    expect(await run([number({ id: ID, reportingGroup: 'Control', carrierStatuses, ...times })])).toEqual({
      numbers: 1,
      carrierStatuses: 2,
    });
    expect(await one()).toEqual({
      phone_number: '+14155550123',
      id: ID,
      business_name: 'Circle Bank',
      profile_status: 'approved',
      internal_name: 'Main Line',
      branding_name_short: 'Circle Bank',
      branding_name_long: 'Circle Bank Financial',
      reporting_group: 'Control',
      status: 'rejected',
      carrier_statuses: carrierStatuses.toReversed(),
      created_at: times.createdAt,
      updated_at: times.updatedAt,
    });
  });

  test('may leave out id and times, which are then made', async () => {
    await run([number()]);
    const { id, created_at, updated_at, carrier_statuses } = await one();
    expect(id).toMatch(/^[0-9a-f-]{36}$/);
    expect(Date.now() - Date.parse(created_at)).toBeLessThan(60_000);
    expect([updated_at, carrier_statuses[0].createdAt]).toEqual([created_at, created_at]);
  });

  test.each(['approved', 'nonsense', null, 7, { a: { a: 1 } }])(
    'has its status derived, whatever it says: %j',
    async (status) => {
      await run([number({ status, carrierStatuses: [entry({ detailedStatus: 'pending.optIn' })] })]);
      expect(await one()).toMatchObject({ status: 'submitted for review' });
    },
  );

  test('may end lines with CRLF, begin with a byte order mark, hold blank lines and lack the last line end', async () => {
    const lines = manyNumbers(3).map((item) => JSON.stringify(item));
    expect(await run(`\ufeff${lines.join('\r\n \t\r\n\n')}`, {}, 1)).toMatchObject({ numbers: 3 });
    expect(await stored()).toHaveLength(3);
  });

  test('may be nothing at all', async () => {
    expect(await run('')).toEqual({ numbers: 0, carrierStatuses: 0 });
  });

  test.each(['back\\slash', '\\N', '\\.', '"quoted"', '{a,b}', 'NULL', "O'Neil; DROP", '🏦 Bänk', ' '])(
    'keeps the name %j as it is, in every place',
    async (name) => {
      const businessProfile = { ...PROFILE, businessName: name, status: name };
      const names = { internalName: name, brandingNameShort: name, brandingNameLong: name, reportingGroup: name };
      await run([number({ businessProfile, ...names, carrierStatuses: [entry({ carrier: name })] })]);
      const { business_name, profile_status, ...row } = await one();
      expect([
        business_name,
        profile_status,
        row.internal_name,
        row.branding_name_short,
        row.branding_name_long,
      ]).toEqual(Array(5).fill(name));
      expect([row.reporting_group, row.carrier_statuses[0].carrier]).toEqual([name, name]);
    },
  );

  test.each([
    ['2026-02-03T16:49:02Z', '2026-02-03T16:49:02.000Z'],
    ['2026-02-03t16:49:02.7489999z', '2026-02-03T16:49:02.748Z'],
    ['2026-02-03T16:49:02.5+02:00', '2026-02-03T14:49:02.500Z'],
    ['2026-02-03T16:49:02+23:59', '2026-02-02T16:50:02.000Z'],
    ['2024-02-29T23:59:59.999Z', '2024-02-29T23:59:59.999Z'],
    ['0001-01-01T00:00:00Z', '0001-01-01T00:00:00.000Z'],
    ['9999-12-31T23:59:59.999999Z', '9999-12-31T23:59:59.999Z'],
  ])('may give the time %s', async (given, expected) => {
    await run([number({ createdAt: given, updatedAt: given, carrierStatuses: [entry({ createdAt: given })] })]);
    const { created_at, updated_at, carrier_statuses } = await one();
    expect([created_at, updated_at, carrier_statuses[0].createdAt]).toEqual(Array(3).fill(expected));
  });

  test('is 5,000 numbers of every shape, all listed by what they are', async () => {
    const items = manyNumbers(5000);
    const carrierStatuses = items.reduce((sum, item) => sum + item.carrierStatuses.length, 0);
    expect(await run(items, {}, 65_536)).toEqual({ numbers: 5000, carrierStatuses });
    const rows = await stored();
    const byPhoneNumber = new Map(items.map((item) => [item.phoneNumber, item]));
    for (const row of rows) {
      const item = byPhoneNumber.get(row.phone_number);
      expect(row).toMatchObject({ internal_name: item?.internalName, reporting_group: item?.reportingGroup });
      expect(new Set(row.carrier_statuses)).toEqual(new Set(item?.carrierStatuses));
    }
    expect(rows).toHaveLength(5000);
    expect(await listedWrongly()).toEqual([]);
  });

  test('is told of while it is read', async () => {
    const file = ndjson(manyNumbers(100));
    const progress: { bytes: number; lines: number }[] = [];
    await run(file, { onProgress: (now: { bytes: number; lines: number }) => progress.push(now) });
    expect(progress.length).toBeGreaterThan(10);
    expect(progress.at(-1)?.bytes).toBe(Buffer.byteLength(file));
    expect(progress.map(({ bytes }) => bytes)).toEqual(progress.map(({ bytes }) => bytes).toSorted((a, b) => a - b));
  });
});

describe('importing again', () => {
  test('the same file writes nothing', async () => {
    const items = manyNumbers(500).map((item, i) =>
      i % 2 ? item : { ...item, carrierStatuses: item.carrierStatuses.map((e) => without(e, 'createdAt')) },
    );
    await run(items);
    const before = await versions();
    expect(await run(items)).toMatchObject({ numbers: 500 });
    expect(await versions()).toEqual(before);
  });

  test('what the listing answers writes nothing', async () => {
    await run([number({ id: ID })]);
    const before = await versions();
    const { created_at: createdAt, updated_at: updatedAt, carrier_statuses: carrierStatuses, status } = await one();
    await run([number({ id: ID.toUpperCase(), createdAt, updatedAt, carrierStatuses, status })]);
    expect(await versions()).toEqual(before);
  });

  test('one number anew leaves the others alone', async () => {
    await run(manyNumbers(10));
    const before = await stored();
    await run([{ ...manyNumbers(10)[3], reportingGroup: 'New' } as object]);
    const after = await stored();
    expect(after.filter(({ reporting_group }) => reporting_group !== 'New')).toEqual(
      before.filter((_, i) => after[i]?.reporting_group !== 'New'),
    );
    expect(after.filter(({ reporting_group }) => reporting_group === 'New')).toHaveLength(1);
    expect(await listedWrongly()).toEqual([]);
  });

  test.each([
    ['internalName', { internalName: null }],
    ['brandingNameShort', { brandingNameShort: 'New' }],
    ['brandingNameLong', { brandingNameLong: 'New' }],
    ['reportingGroup', { reportingGroup: 'New' }],
    ['businessProfile', { businessProfile: { ...PROFILE, id: ID, businessName: 'Square' } }],
    ['an entry less', { carrierStatuses: [] }],
    ['an entry more', { carrierStatuses: [entry(), entry({ carrier: 'Verizon' })] }],
    ['another carrier', { carrierStatuses: [entry({ carrier: 'Verizon' })] }],
    ['another feature', { carrierStatuses: [entry({ feature: 'spamRemediation' })] }],
    ['another detailed status', { carrierStatuses: [entry({ detailedStatus: 'rejected.optIn' })] }],
    ['another time of an entry', { carrierStatuses: [entry({ createdAt: '2026-02-03T16:49:02.748Z' })] }],
    ['another id', { id: ID }],
    ['another createdAt', { createdAt: '2026-02-03T16:49:02.748Z' }],
  ])('with another %s changes that and updatedAt', async (_, changes) => {
    await run([number()]);
    const before = await one();
    await sleep(5);
    await run([number(changes)]);
    const after = await one();
    expect(after.updated_at > before.updated_at).toBe(true);
    expect(after.id).toBe('id' in changes ? changes.id : before.id);
    expect(after.created_at).toBe('createdAt' in changes ? changes.createdAt : before.created_at);
    const changed = ({ updated_at, ...rest }: object & { updated_at?: string }) => rest;
    expect(changed(after)).not.toEqual(changed(before));
    await run([number(changes)]);
    expect(await one()).toEqual(after);
    expect(await listedWrongly()).toEqual([]);
  });

  test('with entries replaces those it had', async () => {
    const given = ['AT&T', 'T-Mobile', 'Verizon'].map((carrier) => entry({ carrier }));
    await run([number({ carrierStatuses: given })]);
    const [att, , verizon] = (await one()).carrier_statuses;
    await sleep(5);
    await run([
      number({
        carrierStatuses: [
          entry(),
          entry({ carrier: 'Verizon', detailedStatus: 'submitted.optOut' }),
          entry({ carrier: 'C Spire' }),
        ],
      }),
    ]);
    const { carrier_statuses, status } = await one();
    expect(carrier_statuses.map(({ carrier }: { carrier: string }) => carrier)).toEqual(['AT&T', 'C Spire', 'Verizon']);
    expect(carrier_statuses[0]).toEqual(att);
    expect(carrier_statuses[2].createdAt > verizon.createdAt).toBe(true);
    expect(status).toBe('submitted for review');
    expect(await listedWrongly()).toEqual([]);
  });

  test('sets updatedAt to what is given', async () => {
    await run([number()]);
    await run([number({ updatedAt: '2027-01-01T00:00:00.000Z' })]);
    expect(await one()).toMatchObject({ updated_at: '2027-01-01T00:00:00.000Z' });
  });

  test('renames a business profile for all its numbers', async () => {
    await run([number(), number({ phoneNumber: '+14155550124' })]);
    await run([number({ businessProfile: { ...PROFILE, businessName: 'Square Bank', status: 'rejected' } })]);
    expect((await stored()).map(({ business_name }) => business_name)).toEqual(['Square Bank', 'Square Bank']);
    expect(await one()).toMatchObject({ profile_status: 'rejected' });
  });
});

describe('a line at fault', () => {
  test.each([
    [{ phoneNumber: '4155550123' }, 'phoneNumber must be a phone number in E.164, for example +14155550123'],
    [{ phoneNumber: '+1' }, 'phoneNumber must be a phone number in E.164, for example +14155550123'],
    [{ phoneNumber: 14155550123 }, 'phoneNumber must be a phone number in E.164, for example +14155550123'],
    [{ phoneNumber: '+14155550123\n' }, 'phoneNumber must be a phone number in E.164, for example +14155550123'],
    [{ brandingNameShort: 'Circle Bank Intl' }, 'brandingNameShort must have at most 15 characters'],
    [{ brandingNameLong: 'x'.repeat(33) }, 'brandingNameLong must have at most 32 characters'],
    [{ internalName: '' }, 'internalName must not be empty'],
    [{ internalName: 'a\tb' }, 'internalName must not contain control characters'],
    [{ internalName: 'a\u0000b' }, 'internalName must not contain control characters'],
    [{ internalName: 7 }, 'internalName must be text or null'],
    [{ businessProfile: { ...PROFILE, businessName: null } }, 'businessProfile.businessName must be text'],
    [{ businessProfile: null }, 'businessProfile must be an object, a business profile'],
    [
      { businessProfile: { ...PROFILE, id: `urn:uuid:${PROFILE.id}` } },
      'businessProfile.id must be a UUID in 8-4-4-4-12 hex form, for example 6513270e-269e-4d37-b2a7-4de452e6b438',
    ],
    [{ id: 'x' }, 'id must be a UUID, for example 0192f1c0-5b7e-7c3a-9d52-3f1f8a6e0b11'],
    [{ carrierStatuses: null }, 'carrierStatuses must be an array'],
    [{ carrierStatuses: Array(1001).fill(entry()) }, 'carrierStatuses must have at most 1000 entries'],
    [{ carrierStatuses: [entry(), 7] }, 'carrierStatuses[1] must be an object, a carrier status'],
    [
      { carrierStatuses: [entry({ feature: 'brandedCallerID' })] },
      'carrierStatuses[0].feature must be brandedCallerId or spamRemediation; did you mean brandedCallerId?',
    ],
    [{ carrierStatuses: [entry(), entry()] }, 'carrierStatuses has two entries for AT&T and brandedCallerId'],
    [{ internalNam: 'x' }, 'internalNam is not a member of a branded phone number; did you mean internalName?'],
    [{ zzzzzzzzzzzz: 'x' }, 'zzzzzzzzzzzz is not a member of a branded phone number'],
    [
      { carrierStatuses: [entry({ detailStatus: 'x' })] },
      'carrierStatuses[0].detailStatus is not a member of a carrier status; did you mean detailedStatus?',
    ],
    [{ internalName: '\ud800' }, 'internalName has half of a surrogate pair (\\ud800 to \\udfff)'],
    [{ carrierStatuses: [entry({ carrier: 'a\udc00' })] }, 'carrier has half of a surrogate pair (\\ud800 to \\udfff)'],
  ])('is told what is wrong: %j', async (changes, reason) => {
    expect(await faultOf(number(changes))).toBe(`1: ${reason}`);
  });

  test.each(['phoneNumber', 'businessProfile', 'internalName', 'reportingGroup', 'carrierStatuses'])(
    'is told that %s is missing',
    async (member) => {
      expect(await faultOf(without(number(), member))).toMatch(new RegExp(`^1: ${member} is missing`));
    },
  );

  test.each([
    '2026-02-30T00:00:00Z',
    '2025-02-29T00:00:00Z',
    '2016-12-31T23:59:60Z',
    '0000-01-01T00:00:00Z',
    '0001-01-01T00:00:00+01:00',
    '9999-12-31T23:59:59-01:00',
    '2026-02-03 16:49:02Z',
    '2026-02-03T16:49:02',
    '2026-02-03T24:00:00Z',
    '2026-02-03T16:49:02+24:00',
    'infinity-is-no-time-at-all',
  ])('may not give the time %s', async (time) => {
    const reason = 'must be a time, for example 2026-02-03T16:49:02.748Z';
    expect(await faultOf(number({ createdAt: time }))).toBe(`1: createdAt ${reason}`);
    expect(await faultOf(number({ carrierStatuses: [entry({ createdAt: time })] }))).toBe(
      `1: carrierStatuses[0].createdAt ${reason}`,
    );
  });

  test('has all its faults told, the first five in words', async () => {
    const faulty = number({
      phoneNumber: 1,
      internalName: 1,
      brandingNameShort: 1,
      brandingNameLong: 1,
      reportingGroup: 1,
      id: 1,
      zzzzzzzz: 1,
    });
    const reason = await faultOf(faulty);
    expect(reason.split('; ')).toHaveLength(6);
    expect(reason).toMatch(/; and 2 more$/);
  });

  test('may not give a member twice', async () => {
    const line = JSON.stringify(number());
    expect(await faultsOf(line.replace('{', '{"internalName" : ": ", '))).toEqual([
      '1: internalName is given twice in one object',
    ]);
    expect(await faultsOf(line.replace('"carrier":', '"carrier":"x","c\\u0061rrier":'))).toEqual([
      '1: carrier is given twice in one object',
    ]);
    expect(await run(JSON.stringify(number({ internalName: ': "a": ' })))).toMatchObject({ numbers: 1 });
  });

  test.each([
    ['not JSON', '{"phoneNumber":'],
    ['two items', `${JSON.stringify(number())},${JSON.stringify(number())}`],
  ])('is told that it is %s', async (_, line) => {
    expect(await faultsOf(line)).toEqual([expect.stringMatching(/^1: is not valid JSON: /)]);
  });

  test.each(['[]', 'null', '7', '"text"'])('is told that %s is no object', async (line) => {
    expect(await faultsOf(line)).toEqual(['1: must be a JSON object, a branded phone number']);
  });

  test('is told that it is not UTF-8', async () => {
    const line = Buffer.from(`${JSON.stringify(number())}\n`);
    const broken = Buffer.from(line);
    broken[broken.indexOf('Main')] = 0xff;
    expect(await faultsOf(Buffer.concat([line, broken]))).toEqual(['2: is not valid UTF-8']);
  });

  test('is told that it is too long, and the lines after it are read', async () => {
    const long = JSON.stringify(number({ internalName: 'x'.repeat(5 * 1024 * 1024) }));
    expect(await faultsOf(`${long}\n\n7\n`)).toEqual([
      '1: is longer than 4 MiB',
      '3: must be a JSON object, a branded phone number',
    ]);
  });

  test('cannot steer the terminal of who reads why', async () => {
    expect(await faultOf(number({ '\u001b[2Jx\u202e': 1 }))).not.toMatch(/\p{C}/u);
  });
});

describe('lines that contradict each other', () => {
  const other = (changes: object) => number({ phoneNumber: '+14155550124', ...changes });

  test.each([
    ['one phoneNumber', [number(), number()], '3: phoneNumber +14155550123 stands on line 1 already'],
    [
      'one id',
      [number({ id: ID }), other({ id: ID.toUpperCase() })],
      `3: id ${ID} is that of another number, on line 1`,
    ],
    [
      'a business profile with two names',
      [number(), other({ businessProfile: { ...PROFILE, businessName: 'Square' } })],
      `3: businessProfile ${PROFILE.id} has another businessName than on line 1`,
    ],
    [
      'a business profile with two statuses',
      [number(), other({ businessProfile: { ...PROFILE, status: 'rejected' } })],
      `3: businessProfile ${PROFILE.id} has another status than on line 1`,
    ],
  ])('are told: %s', async (_, [first, second], fault) => {
    expect(await faultsOf(`${JSON.stringify(first)}\n\n${JSON.stringify(second)}\n`)).toEqual([fault]);
  });

  test('are told beside the lines that are wrong in themselves, in order', async () => {
    const file = `${JSON.stringify(number({ id: ID }))}\n7\n${JSON.stringify(number({ id: ID }))}\n[]\n`;
    expect((await faultsOf(file)).map((fault) => fault.slice(0, 20))).toEqual([
      '2: must be a JSON ob',
      '3: phoneNumber +1415',
      '4: must be a JSON ob',
    ]);
  });

  test('with the database are told, and change nothing', async () => {
    await run([number({ id: ID })]);
    const before = await versions();
    await expect(run([other({}), number({ phoneNumber: '+14155550125', id: ID })])).rejects.toThrow(
      `line 2: id ${ID} is that of another number, +14155550123`,
    );
    expect(await versions()).toEqual(before);
  });
});

test('A hundred faulty lines are told, the first ones', async () => {
  const good = JSON.stringify(number());
  const faults = await faultsOf(`${good}\n${good}\n${'7\n'.repeat(300)}`);
  expect(faults).toHaveLength(100);
  expect(faults[0]).toMatch(/^2: phoneNumber/);
  expect(faults[99]).toMatch(/^101: /);
});

test('The message has a line for each fault', async () => {
  await expect(run('7\n\n[]\n')).rejects.toThrow(
    'line 1: must be a JSON object, a branded phone number\nline 3: must be a JSON object, a branded phone number',
  );
});

describe('all or nothing', () => {
  const lines = ndjson(manyNumbers(2000)).split(/(?<=\n)/);

  test('when one line of many is wrong', async () => {
    await run([number()]);
    const before = await versions();
    await expect(run([...manyNumbers(2000), { wrong: true }])).rejects.toThrow('line 2001: ');
    expect(await versions()).toEqual(before);
  });

  test('when the input fails in the middle', async () => {
    async function* failing() {
      yield* lines;
      throw new Error('the disk is gone');
    }
    await expect(importNumbers(database, Readable.from(failing()))).rejects.toThrow('the disk is gone');
    expect(await stored()).toEqual([]);
    expect(await run(manyNumbers(10))).toMatchObject({ numbers: 10 });
  });

  /** Kills the connections that match. */
  const cut = async (condition: string) => {
    const [row] = await database.$client.unsafe(`
      SELECT count(pg_terminate_backend(pid))::int FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND ${condition}`);
    return row?.count;
  };

  test('when the connection is cut while the file is read', async () => {
    async function* interrupted() {
      yield* lines;
      expect(await cut("query LIKE 'COPY staged%'")).toBe(1);
      for (;;) yield await sleep(5, '\n');
    }
    await expect(importNumbers(database, Readable.from(interrupted()))).rejects.toThrow();
    expect(await stored()).toEqual([]);
    expect(await run(manyNumbers(10))).toMatchObject({ numbers: 10 });
  });

  test.each([
    ['row by row', 2000, 'SHARE'],
    ['anew', 10_000, 'ACCESS SHARE'],
  ])('when the connection is cut while the tables are written %s', async (_how, count, mode) => {
    await database.$client.begin(async (sql) => {
      // The import waits for this in the middle of its writing.
      await sql.unsafe(`LOCK TABLE listings IN ${mode} MODE`);
      const importing = run(manyNumbers(count), {}, 1_000_000);
      importing.catch(() => {});
      await expect.poll(() => cut("wait_event_type = 'Lock'"), { timeout: 20_000 }).toBe(1);
      await expect(importing).rejects.toThrow();
    });
    expect(await stored()).toEqual([]);
    expect(await run(manyNumbers(10))).toMatchObject({ numbers: 10 });
  });
});

/** What the triggers, writing every number anew, would derive differently. */
async function derivedWrongly() {
  const derived = () =>
    database.$client`
      SELECT phone_number, status, item_tail, (SELECT array_agg(id ORDER BY id) FROM unnest(facet_ids) AS id) AS facet_ids
      FROM branded_phone_numbers ORDER BY phone_number`;
  const before = await derived();
  await database.$client`UPDATE branded_phone_numbers SET status = DEFAULT`;
  const after = await derived();
  return before.filter((row, i) => JSON.stringify(row) !== JSON.stringify(after[i]));
}

describe('an import derives what the triggers would', () => {
  test('of numbers that are new, that change and that stay', async () => {
    await run(manyNumbers(400).slice(100));
    await run(manyNumbers(400).map((item, i) => (i % 3 ? item : { ...item, carrierStatuses: [entry()] })));
    expect(await listedWrongly()).toEqual([]);
    expect(await derivedWrongly()).toEqual([]);
  });

  test('and leaves it to them where it does not own the tables', async () => {
    await database.$client`DROP ROLE IF EXISTS importer`;
    await database.$client`CREATE ROLE importer LOGIN PASSWORD 'importer'`;
    await database.$client`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO importer`;
    const url = new URL(databaseUrl);
    url.username = url.password = 'importer';
    const importer = openDatabase(url.href);
    const file = ndjson(manyNumbers(400).map((item) => ({ ...item, reportingGroup: 'By importer' })));
    expect(await importNumbers(importer, Readable.from([Buffer.from(file)]))).toMatchObject({ numbers: 400 });
    await closeDatabase(importer);
    expect(new Set((await stored()).map(({ reporting_group: group }) => group))).toEqual(new Set(['By importer']));
    expect(await listedWrongly()).toEqual([]);
    expect(await derivedWrongly()).toEqual([]);
    await database.$client`DROP OWNED BY importer`;
    await database.$client`DROP ROLE importer`;
  });
});

describe('A large import exchanges the tables', () => {
  const TABLES = ['branded_phone_numbers', 'carrier_statuses', 'listings'];
  const identities = () => database.$client`
    SELECT oid FROM pg_class WHERE relname IN ('branded_phone_numbers', 'carrier_statuses', 'listings') AND relkind = 'r'
    ORDER BY relname`;
  /** All that hangs on the tables, and that nothing else is left in the database. */
  const structure = () => database.$client`
    SELECT relname, relowner, (SELECT array_agg(acl::text ORDER BY acl::text) FROM unnest(relacl) AS acl) AS grants, relnamespace::regnamespace,
      (SELECT array_agg(indexdef ORDER BY indexdef) FROM pg_indexes WHERE tablename = relname) AS indexes,
      (SELECT array_agg(conname || pg_get_constraintdef(oid) ORDER BY conname) FROM pg_constraint
       WHERE conrelid = c.oid) AS constraints,
      (SELECT array_agg(pg_get_triggerdef(oid) ORDER BY tgname) FROM pg_trigger
       WHERE tgrelid = c.oid AND NOT tgisinternal) AS triggers,
      (SELECT array_agg(ARRAY[attname, atttypid::regtype::text, atttypmod::text, attcollation::text, attnotnull::text,
         pg_get_expr(adbin, adrelid)] ORDER BY attnum)
       FROM pg_attribute LEFT JOIN pg_attrdef ON (adrelid, adnum) = (attrelid, attnum)
       WHERE attrelid = c.oid AND attnum > 0) AS columns,
      (SELECT array_agg(nspname ORDER BY nspname) FROM pg_namespace WHERE nspname !~ '^pg_') AS schemas
    FROM pg_class AS c WHERE relname = ANY (${TABLES}::text[]) ORDER BY relname`;

  /** What is stored, but for what each import makes anew. */
  const timeless = async () =>
    (await stored()).map(({ id, created_at, updated_at, carrier_statuses, ...row }) => ({
      ...row,
      carrier_statuses: carrier_statuses.map((each: object) => without(each, 'createdAt')),
    }));

  /** Whether an import has locked out writers. */
  const isLockedOut = async (sql: TransactionSql) => {
    const locks = await sql`
      SELECT FROM pg_locks WHERE relation = 'branded_phone_numbers'::regclass AND mode = 'ShareRowExclusiveLock'`;
    return locks.length > 0;
  };

  test('for new ones, which lack nothing, and no page fails meanwhile', async () => {
    await database.$client`DROP ROLE IF EXISTS reader`;
    await database.$client`CREATE ROLE reader`;
    await database.$client`GRANT SELECT ON listings TO reader WITH GRANT OPTION`;
    await database.$client`GRANT SELECT, INSERT ON branded_phone_numbers TO PUBLIC`;
    const [before, oids] = [await structure(), await identities()];

    const pages = preparePages(database);
    let isImporting = true;
    const importing = run(manyNumbers(12_000), {}, 1_000_000).finally(() => (isImporting = false));
    const found = new Set<number>();
    while (isImporting) {
      const filter = filterOf({ carrier: ['AT&T'], feature: ['brandedCallerId'] });
      found.add((await pages({ filter, visibleProfiles: null, after: '', size: 25 })).count);
    }
    expect(await importing).toMatchObject({ numbers: 12_000 });
    expect(found.has(0)).toBe(true);
    expect([...found].every((count) => count === 0 || count === 25)).toBe(true);

    const after = await identities();
    expect(after.filter(({ oid }) => oids.some((old) => old.oid === oid))).toEqual([]);
    expect(await structure()).toEqual(before);
    expect(await listedWrongly()).toEqual([]);
    expect(await derivedWrongly()).toEqual([]);
    await database.$client`DROP OWNED BY reader`;
    await database.$client`DROP ROLE reader`;
    await database.$client`REVOKE SELECT, INSERT ON branded_phone_numbers FROM PUBLIC`;
  });

  test('with the numbers that stay, that change, and that are new', async () => {
    const changed = manyNumbers(16_000).map((item, i) => (i % 3 ? item : { ...item, carrierStatuses: [entry()] }));
    await run(manyNumbers(16_000).slice(8000));
    await run([number()]);
    const kept = (await stored()).at(-1);
    const oids = await identities();
    await run(changed.slice(0, 15_000));
    expect(await identities()).not.toEqual(oids);
    expect(await stored()).toHaveLength(16_001);
    expect((await stored()).at(-1)).toEqual(kept);
    expect(await listedWrongly()).toEqual([]);
    expect(await derivedWrongly()).toEqual([]);

    const exchanged = await timeless();
    await database.$client`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`;
    // The same in small parts, which are written row by row.
    await run([number()]);
    for (let start = 0; start < 16_000; start += 4000) await run(manyNumbers(16_000).slice(start, start + 4000));
    for (let start = 0; start < 15_000; start += 5000) await run(changed.slice(start, start + 5000));
    expect(await timeless()).toEqual(exchanged);
  }, 60_000);

  test.each([
    ['a view', 'CREATE VIEW theirs AS SELECT phone_number FROM branded_phone_numbers', 'DROP VIEW theirs'],
    [
      'another table',
      'CREATE TABLE theirs (phone_number text COLLATE "C" REFERENCES branded_phone_numbers)',
      'DROP TABLE theirs',
    ],
    ['a publication', 'CREATE PUBLICATION theirs FOR ALL TABLES', 'DROP PUBLICATION theirs'],
    [
      'a setting',
      'ALTER TABLE listings SET (autovacuum_enabled = false)',
      'ALTER TABLE listings RESET (autovacuum_enabled)',
    ],
    ['a comment', "COMMENT ON TABLE listings IS 'Theirs'", 'COMMENT ON TABLE listings IS NULL'],
    ['a policy', 'CREATE POLICY theirs ON carrier_statuses USING (true)', 'DROP POLICY theirs ON carrier_statuses'],
  ])('but not where %s of others hangs on one', async (_what, make, drop) => {
    await database.$client.unsafe(make);
    const oids = await identities();
    expect(await run(manyNumbers(10_000), {}, 1_000_000)).toMatchObject({ numbers: 10_000 });
    expect(await identities()).toEqual(oids);
    await database.$client.unsafe(drop);
    expect(await listedWrongly()).toEqual([]);
  });

  test.each([
    ['writes', 'api_keys', true],
    ['has read them and then writes', 'branded_phone_numbers', false],
  ])(
    'unless it must not, and a transaction that %s goes on',
    async (_what, read, isExchanged) => {
      await run([number()]);
      const oids = await identities();
      let importing: ReturnType<typeof run> | undefined;
      await database.$client.begin(async (sql) => {
        await sql`SELECT FROM ${sql(read)}`;
        importing = run(manyNumbers(10_000), {}, 1_000_000);
        await expect.poll(() => isLockedOut(sql), { timeout: 20_000 }).toBe(true);
        await sql`UPDATE branded_phone_numbers SET reporting_group = 'Later' WHERE phone_number = '+14155550123'`;
      });
      expect(await importing).toMatchObject({ numbers: 10_000 });
      expect((await stored()).at(-1)).toMatchObject({ reporting_group: 'Later' });
      expect(await stored()).toHaveLength(10_001);
      expect(await listedWrongly()).toEqual([]);
      const exchanged = (await identities()).every(({ oid }) => oids.every((old) => old.oid !== oid));
      expect(exchanged).toBe(isExchanged);
    },
    60_000,
  );

  test('but not while a transaction reads for long', async () => {
    const oids = await identities();
    await database.$client.begin(async (sql) => {
      await sql`SELECT FROM listings LIMIT 1`;
      expect(await run(manyNumbers(10_000), {}, 1_000_000)).toMatchObject({ numbers: 10_000 });
    });
    expect(await identities()).toEqual(oids);
    expect(await stored()).toHaveLength(10_000);
    expect(await listedWrongly()).toEqual([]);
    expect(await derivedWrongly()).toEqual([]);
  }, 60_000);
});

test('Two imports at once wait for each other', async () => {
  const [first, second] = [manyNumbers(1000), manyNumbers(1000).map((item) => ({ ...item, reportingGroup: 'Second' }))];
  const results = await Promise.all([run(first), run(second), run(first), run(second.toReversed())]);
  expect(results.map(({ numbers }) => numbers)).toEqual([1000, 1000, 1000, 1000]);
  expect(await stored()).toHaveLength(1000);
  expect(new Set((await stored()).map(({ reporting_group: group }) => group === 'Second')).size).toBe(1);
  expect(await listedWrongly()).toEqual([]);
});

test('Pages are read while an import holds its locks', async () => {
  await run(manyNumbers(10));
  const seen: number[] = [];
  let done = false;
  const importing = run(manyNumbers(5000), {}, 65_536).finally(() => {
    done = true;
  });
  while (!done) {
    const start = performance.now();
    const [{ count }] = (await database.$client`SELECT count(*)::int FROM branded_phone_numbers`) as [
      { count: number },
    ];
    seen.push(count);
    expect(performance.now() - start).toBeLessThan(1000);
  }
  await importing;
  expect(new Set(seen.filter((count) => count !== 10 && count !== 5000 + 10)).size).toBeLessThanOrEqual(1);
});
