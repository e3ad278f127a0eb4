/** The shape of a response is defined in three places: the contract, the SQL that builds the JSON, and the tables. */
import { randomUUID } from 'node:crypto';
import { getTableColumns } from 'drizzle-orm';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { contract, type Schema } from '../../src/contract.js';
import { brandedPhoneNumbers, businessProfiles, carrierStatuses } from '../../src/database/schema.js';
import { connectTo } from '../support/connection.js';
import { createDatabase } from '../support/database.js';
import { items } from '../support/derived.js';

const membersOf = (name: string) => Object.keys((contract.components.schemas[name] as Schema).properties ?? {});

test('An item has the members that the contract lists, in its order, and so have its business profile and entries', async () => {
  const { url, drop } = await createDatabase();
  const sql = connectTo(url);
  try {
    const [profile] =
      await sql`INSERT INTO business_profiles VALUES (gen_random_uuid(), 'Circle Bank', 'approved') RETURNING id`;
    await sql`INSERT INTO branded_phone_numbers (phone_number, business_profile_id) VALUES ('+19', ${profile?.id})`;
    await sql`INSERT INTO carrier_statuses VALUES ('+19', 'AT&T', 'brandedCallerId', 'approved.optIn')`;
    const [item] = await items(sql);
    expect(Object.keys(item ?? {})).toEqual(membersOf('BrandedPhoneNumber'));
    expect(Object.keys(item?.businessProfile ?? {})).toEqual(membersOf('BusinessProfile'));
    expect(Object.keys(item?.carrierStatuses[0] ?? {})).toEqual(membersOf('CarrierStatus'));
  } finally {
    await sql.end();
    await drop();
  }
});

test('A business profile has the JSON that to_json makes of its names, whatever characters they have', async () => {
  const { url, drop } = await createDatabase();
  const sql = connectTo(url);
  try {
    const character = fc.constantFrom(...'"\\/\'{}nu0 aé🏦\u2028');
    const names = fc.sample(fc.string({ unit: character, minLength: 1, maxLength: 6 }), 1000);
    await sql`INSERT INTO business_profiles ${sql(names.map((name) => ({ id: randomUUID(), business_name: name, status: name })))}`;
    const wrong = await sql`
      SELECT item FROM business_profiles
      WHERE item <> '{"id":"' || id || '","businessName":' || to_json(business_name) || ',"status":' || to_json(status) || '}'`;
    expect([...wrong]).toEqual([]);
    expect(await sql`SELECT count(*)::int FROM business_profiles`).toEqual([{ count: 1000 }]);
  } finally {
    await sql.end();
    await drop();
  }
});

test.each([
  [
    'BrandedPhoneNumber',
    brandedPhoneNumbers,
    { businessProfile: 'businessProfileId', carrierStatuses: undefined, status: undefined },
    [],
  ],
  ['BusinessProfile', businessProfiles, {}, []],
  ['CarrierStatus', carrierStatuses, {}, ['phoneNumber']],
] as const)(
  'Each member of a %s that the contract lists has its column, and no column is left over',
  (name, table, renamed, others) => {
    const wanted = membersOf(name).map((member) =>
      member in renamed ? renamed[member as keyof typeof renamed] : member,
    );
    const columns = [...wanted, ...others].filter((column) => column !== undefined);
    const given = Object.entries(getTableColumns(table)).filter(([, { generated }]) => !generated);
    expect(given.map(([column]) => column).toSorted()).toEqual(columns.toSorted());
  },
);
