/**
 * The shape of a response is defined in three places: the contract, the SQL that builds the JSON, and the tables. Tests
 * of requests compare the first two (expectDescribed).
 */
import { randomUUID } from 'node:crypto';
import { getTableColumns } from 'drizzle-orm';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { contract, type Schema } from '../../src/contract.js';
import { brandedPhoneNumbers, businessProfiles, carrierStatuses } from '../../src/database/schema.js';
import { useDatabase } from '../support/database.js';

const database = useDatabase();

test('the stored JSON of a business profile is what to_json makes, for any characters in its names', async () => {
  const character = fc.constantFrom(...'"\\/\'{}nu0 aé🏦\u2028');
  const names = fc.sample(fc.string({ unit: character, minLength: 1, maxLength: 6 }), 1000);
  const profiles = names.map((name) => ({ id: randomUUID(), business_name: name, status: name }));
  const { sql } = database;
  expect((await sql`INSERT INTO business_profiles ${sql(profiles)}`).count).toBe(1000);
  const wrong = await sql`
    SELECT item FROM business_profiles
    WHERE item <> '{"id":"' || id || '","businessName":' || to_json(business_name) || ',"status":' || to_json(status) || '}'`;
  expect([...wrong]).toEqual([]);
});

const RENAMED = { businessProfile: 'businessProfileId', carrierStatuses: undefined, status: undefined };
test.each([
  ['BrandedPhoneNumber', brandedPhoneNumbers, RENAMED, []],
  ['BusinessProfile', businessProfiles, {}, []],
  ['CarrierStatus', carrierStatuses, {}, ['phoneNumber']],
] as const)('the table of %s has a column for each member in the contract, and no other', (...row) => {
  const [name, table, renamed, additional] = row;
  const { properties = {} } = contract.components.schemas[name] as Schema;
  const members = Object.keys(properties).map((member) =>
    member in renamed ? renamed[member as keyof typeof renamed] : member,
  );
  const expected = [...members, ...additional].filter((column) => column !== undefined);
  const columns = Object.entries(getTableColumns(table)).filter(([, { generated }]) => !generated);
  expect(columns.map(([column]) => column).toSorted()).toEqual(expected.toSorted());
});
