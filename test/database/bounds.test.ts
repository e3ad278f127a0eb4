/** The tables accept exactly the values that the contract allows, no matter which program writes. */
import { beforeEach, describe, expect, it } from 'vitest';
import { DetailedStatus, Feature } from '../../generated/types/models/index.js';
import { contract } from '../../src/contract.js';
import { STATUSES } from '../../src/status.js';
import { expectDerivedToAgree, items } from '../support/derived.js';
import { addNumber, PROFILE, first as sql, useSessions } from '../support/sessions.js';

useSessions();
beforeEach(() => addNumber(sql, '+19'));

const setNumber = (column: string, value: string) => `UPDATE branded_phone_numbers SET ${column} = ${value}`;
const addPhone = (phone: string) =>
  `INSERT INTO branded_phone_numbers (phone_number, business_profile_id) VALUES (${phone}, '${PROFILE}')`;
const addEntry = (columns: { [column: string]: string } = {}) => {
  const row = {
    phone_number: `'+19'`,
    carrier: `'AT&T'`,
    feature: `'brandedCallerId'`,
    detailed_status: `'approved.optIn'`,
    ...columns,
  };
  return `INSERT INTO carrier_statuses (${Object.keys(row)}) VALUES (${Object.values(row)})`;
};
const addProfile = (name: string) => `INSERT INTO business_profiles VALUES (gen_random_uuid(), ${name}, 'approved')`;

describe('the tables reject', () => {
  it.each([
    ['a phone number that begins with +0', addPhone(`'+0123'`), 'phone_number_is_e164'],
    ['a phone number of 1 digit', addPhone(`'+1'`), 'phone_number_is_e164'],
    ['a phone number of 16 digits', addPhone(`'+1234567890123456'`), 'phone_number_is_e164'],
    ['a phone number followed by a line feed', addPhone(`E'+123\\n'`), 'phone_number_is_e164'],
    ['a short branding name of 16 characters', setNumber('branding_name_short', `repeat('x', 16)`), 'is_name'],
    ['a long branding name of 33 characters', setNumber('branding_name_long', `repeat('x', 33)`), 'is_name'],
    ['an empty internal name', setNumber('internal_name', `''`), 'internal_name_is_name'],
    ['a carrier of 256 characters', addEntry({ carrier: `repeat('x', 256)` }), 'carrier_is_name'],
    ['a control character', setNumber('reporting_group', `E'a\\nb'`), 'reporting_group_is_name'],
    ['a business profile without a name', addProfile(`''`), 'business_name_is_name'],
    [
      'a number of a business profile that does not exist',
      setNumber('business_profile_id', 'gen_random_uuid()'),
      'has_business_profile',
    ],
    ['an entry of a number that does not exist', addEntry({ phone_number: `'+199'` }), 'carrier_status_has_number'],
    ['a second entry for the same carrier and feature', `${addEntry()}; ${addEntry()}`, 'carrier_statuses_pkey'],
  ])('%s', async (_what, statement, reason) => {
    await expect(sql.unsafe(statement)).rejects.toThrow(reason);
  });

  const times = ['infinity', '-infinity', '0001-12-31 23:59:59.999+00 BC', '10000-01-01 00:00:00+00'];
  it.each(times)('the time %s, which RFC 3339 cannot express', async (time) => {
    for (const statement of [
      setNumber('created_at', `'${time}'`),
      `INSERT INTO branded_phone_numbers (phone_number, business_profile_id, updated_at) VALUES ('+18', '${PROFILE}', '${time}')`,
      addEntry({ created_at: `'${time}'` }),
      `INSERT INTO api_keys (hash, name, created_at) VALUES ('x', 'x', '${time}')`,
      `INSERT INTO api_keys (hash, name, revoked_at) VALUES ('x', 'x', '${time}')`,
    ]) {
      await expect(sql.unsafe(statement)).rejects.toThrow(/_times?"/);
    }
  });
});

describe('the entries of a number', () => {
  const max = Number(contract.components.schemas.BrandedPhoneNumber?.properties?.carrierStatuses?.maxItems);
  const addEntries = (phone: string, count: number) =>
    `INSERT INTO carrier_statuses SELECT '${phone}', 'Carrier ' || i, 'spamRemediation', 'approved.optIn'
     FROM generate_series(1, ${count}) AS i`;
  const tooMany = `+19 would have more than ${max} carrier statuses`;

  it('are at most as many as the contract allows, in one statement or several, put off or not', async () => {
    await sql.unsafe(addEntries('+19', max));
    await expect(sql.unsafe(addEntry())).rejects.toThrow(tooMany);
    await expect(sql.unsafe(`SET branded_phone_numbers.defer = 'on'; ${addEntry()}`)).rejects.toThrow(tooMany);
    await sql`DELETE FROM carrier_statuses`;
    await expect(sql.unsafe(addEntries('+19', max + 1))).rejects.toThrow(tooMany);
    await addNumber(sql, '+18');
    await sql.unsafe(`${addEntries('+19', max)}; ${addEntries('+18', max)}`);
    // An import has counted the entries of its lines.
    await sql.unsafe(`SET branded_phone_numbers.defer = 'import'; ${addEntry()}; RESET branded_phone_numbers.defer`);
    await expectDerivedToAgree(sql);
  });

  it('can be checked, changed and deleted if an earlier version accepted more', async () => {
    await sql.unsafe(
      `SET session_replication_role = replica; ${addEntries('+19', max + 2)}; RESET session_replication_role`,
    );
    await sql`SELECT derive('{+19}')`; // as check does
    await sql`UPDATE carrier_statuses SET detailed_status = 'rejected.optIn'`;
    await sql`DELETE FROM carrier_statuses WHERE carrier = 'Carrier 1'`;
    await expectDerivedToAgree(sql);
    await expect(sql.unsafe(addEntry())).rejects.toThrow(tooMany);
  });
});

describe('the tables accept', () => {
  it.each([
    ['0001-01-01 00:00:00+00', '0001-01-01T00:00:00.000Z'],
    ['9999-12-31 23:59:59.999+00', '9999-12-31T23:59:59.999Z'],
  ])('the time %s, and return it as %s', async (time, shown) => {
    await sql`
      INSERT INTO branded_phone_numbers (phone_number, business_profile_id, created_at, updated_at)
      VALUES ('+18', ${PROFILE}, ${time}::text::timestamptz, ${time}::text::timestamptz)`;
    const [number] = await items(sql);
    expect([number?.createdAt, number?.updatedAt]).toEqual([shown, shown]);
    await sql.unsafe(addEntry({ created_at: `'${time}'` }));
    expect((await items(sql))[1]?.carrierStatuses).toMatchObject([{ createdAt: shown }]);
  });

  it('the longest texts that the contract allows', async () => {
    const longest = 'ü'.repeat(255);
    await addNumber(sql, '+123456789012345');
    await sql`
      UPDATE branded_phone_numbers SET internal_name = ${longest}, reporting_group = ${longest},
        branding_name_short = ${'x'.repeat(15)}, branding_name_long = ${'😀'.repeat(32)}`;
    await sql.unsafe(addEntry({ phone_number: `'+123456789012345'`, carrier: `'${longest}'` }));
    await expectDerivedToAgree(sql);
  });

  it('exactly the characters that the contract’s pattern of a name matches', async () => {
    const exact = new RegExp(String(contract.components.schemas.Name?.['x-exact-pattern']), 'u');
    const characters = Array.from({ length: 0x17f }, (_, i) => String.fromCodePoint(i + 1));
    const accepted = await Promise.all(
      characters.map((carrier) =>
        sql`INSERT INTO carrier_statuses VALUES ('+19', ${carrier}, 'brandedCallerId', 'approved.optIn')`.then(
          () => true,
          () => false,
        ),
      ),
    );
    expect(characters.filter((_, i) => accepted[i])).toEqual(characters.filter((character) => exact.test(character)));
  });

  it.each([
    ['status', STATUSES],
    ['detailed_status', DetailedStatus],
    ['feature', Feature],
  ])('as %s exactly the values that the contract lists', async (type, listed) => {
    const rows = await sql.unsafe(`SELECT unnest(enum_range(NULL::${type}))::text AS value`);
    expect(rows.map(({ value }) => value)).toEqual(Object.values(listed));
  });
});
