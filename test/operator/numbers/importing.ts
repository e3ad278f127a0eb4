/** Imports into a database of the test file, and reads what they stored. */
import { Readable } from 'node:stream';
import { beforeAll, beforeEach, expect } from 'vitest';
import { DetailedStatus, Feature } from '../../../generated/types/models/index.js';
import { importNumbers } from '../../../src/operator/numbers/import.js';
import { InputError, sentence } from '../../../src/operator/numbers/lines.js';
import { useDatabase as createDatabase, type TestConnection as Database } from '../../support/database.js';
import { ndjson } from '../../support/ndjson.js';

export let database: Database;

/** Opens a database for all tests of a file, and empties it before each. */
export function useDatabase(): void {
  const created = createDatabase();
  beforeAll(() => {
    database = created.drizzle;
  });
  beforeEach(() => database.$client`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`);
}

export const PROFILE = { id: '6513270e-269e-4d37-b2a7-4de452e6b438', businessName: 'Circle Bank', status: 'approved' };
export const ID = '0192f1c0-5b7e-7c3a-9d52-3f1f8a6e0b11';

export const number = (changes: object = {}) => ({
  phoneNumber: '+14155550123',
  businessProfile: PROFILE,
  internalName: 'Main Line',
  brandingNameShort: 'Circle Bank',
  brandingNameLong: 'Circle Bank Financial',
  reportingGroup: null,
  carrierStatuses: [entry()],
  ...changes,
});
export const entry = (changes: object = {}) => ({
  carrier: 'AT&T',
  feature: 'brandedCallerId',
  detailedStatus: 'approved.optIn',
  ...changes,
});
export const without = (item: object, member: string) =>
  Object.fromEntries(Object.entries(item).filter(([name]) => name !== member));

/** Returns numbers with 0 to 7 entries, all detailed statuses, and names that need escapes. */
export const manyNumbers = (count: number) =>
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

/** Imports text, bytes or items, in chunks that end anywhere in a line or character. */
export const run = (file: string | Buffer | object[], options = {}, chunkLength = 1000) => {
  const bytes = Buffer.from(Array.isArray(file) ? ndjson(file) : file);
  const chunks = Array.from({ length: Math.ceil(bytes.length / chunkLength) }, (_, i) =>
    bytes.subarray(i * chunkLength, (i + 1) * chunkLength),
  );
  return importNumbers(database.url, Readable.from(chunks), options);
};

/** Returns the faults of a file, each after its line's number; fails if the import stores anything. */
export const faultsOf = async (file: string | Buffer | object[], options = {}, chunkLength?: number) => {
  const error = await run(file, options, chunkLength).then(
    () => expect.fail('the import accepted the file'),
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof InputError)) throw error;
  expect(await stored()).toEqual([]);
  return error.faults.map((fault) => sentence(fault).replace('line ', ''));
};
export const faultOf = async (item: unknown) => (await faultsOf(`${JSON.stringify(item)}\n`)).join('\n');

/** Returns all numbers with what a response shows of them. */
export const stored = () => database.$client`
  SELECT phone_number, number.id, profile.business_name, profile.status AS profile_status, number.internal_name,
    branding_name_short, branding_name_long, number.reporting_group, items.status,
    ('{"id":0' || item_tail)::json -> 'carrierStatuses' AS carrier_statuses,
    rfc3339(created_at) AS created_at, rfc3339(items.updated_at) AS updated_at
  FROM branded_phone_numbers AS number
  JOIN items USING (phone_number)
  JOIN business_profiles AS profile ON profile.id = number.business_profile_id
  ORDER BY phone_number`;
export const storedNumber = async () => (await stored())[0] ?? expect.fail('nothing is stored');

/** Returns every row of every table with its version, which each write changes. */
export const versions = async () => {
  const tables = ['business_profiles', 'branded_phone_numbers', 'carrier_statuses', 'items', 'terms', 'postings'];
  return Promise.all(
    tables.map((table) => database.$client.unsafe(`SELECT ctid, xmin, * FROM ${table} ORDER BY ctid`)),
  );
};
