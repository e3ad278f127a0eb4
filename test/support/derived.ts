/** Compares the read model with its sources; the tests' only definition of that invariant. */
import type { Sql } from 'postgres';
import { expect } from 'vitest';
import type { BrandedPhoneNumber, CarrierStatus } from '../../generated/types/models/index.js';
import { byBytes, overallStatus } from './reference.js';

/** Fails unless the read model matches its sources. */
export async function expectDerivedToAgree(sql: Sql): Promise<void> {
  expect(await items(sql)).toEqual(await itemsFromSources(sql));
  expect(await columnsThatDiffer(sql)).toEqual([]);
  expect(await postingsThatDiffer(sql)).toEqual([]);
  expect(await termIdsThatDiffer(sql)).toEqual([]);
}

/** Returns all numbers as a response shows them. */
export async function items(sql: Sql): Promise<BrandedPhoneNumber[]> {
  const rows = await sql<{ item: string }[]>`
    SELECT '{"id":"' || items.id || '","phoneNumber":"' || phone_number || '","businessProfile":'
      || profile.item || item_tail AS item
    FROM items LEFT JOIN business_profiles AS profile ON profile.id = business_profile_id
    ORDER BY phone_number`;
  return rows.map(({ item }) => JSON.parse(item));
}

async function itemsFromSources(sql: Sql): Promise<BrandedPhoneNumber[]> {
  const byNumber = new Map<string, CarrierStatus[]>();
  const rows = await sql`
    SELECT phone_number, carrier, feature, detailed_status, ${seconds(sql, 'created_at')} AS created FROM carrier_statuses`;
  for (const { phone_number, carrier, feature, detailed_status, created } of rows) {
    const entries = byNumber.get(phone_number) ?? [];
    entries.push({ carrier, feature, detailedStatus: detailed_status, createdAt: time(created) });
    byNumber.set(phone_number, entries);
  }
  const numbers = await sql`
    SELECT number.*, business_name, profile.status AS profile_status,
      ${seconds(sql, 'number.created_at')} AS created, ${seconds(sql, 'shown.updated_at')} AS updated,
      shown.updated_at >= number.updated_at AS is_late_enough
    FROM branded_phone_numbers AS number JOIN business_profiles AS profile ON profile.id = business_profile_id
    LEFT JOIN items AS shown USING (phone_number)
    ORDER BY phone_number`;
  return numbers.map((row) => {
    expect(row).toMatchObject({ is_late_enough: true });
    const carrierStatuses = byNumber.get(row.phone_number) ?? [];
    carrierStatuses.sort((a, b) => byBytes(a.carrier, b.carrier) || byBytes(a.feature, b.feature));
    return {
      id: row.id,
      phoneNumber: row.phone_number,
      businessProfile: { id: row.business_profile_id, businessName: row.business_name, status: row.profile_status },
      internalName: row.internal_name,
      brandingNameShort: row.branding_name_short,
      brandingNameLong: row.branding_name_long,
      reportingGroup: row.reporting_group,
      status: overallStatus(carrierStatuses),
      carrierStatuses,
      createdAt: time(row.created),
      updatedAt: time(row.updated),
    };
  });
}

/** Seconds since 1970, because JavaScript reads the year 1 in PostgreSQL's text as 2001. */
const seconds = (sql: Sql, column: string) => sql`extract(epoch FROM ${sql(column)})::float8`;
const time = (secondsSince1970: number) => new Date(Math.round(secondsSince1970 * 1000)).toISOString();

/** Selects items with columns that differ from their JSON; filters use the columns. */
const columnsThatDiffer = (sql: Sql) => sql`
  SELECT phone_number FROM items JOIN branded_phone_numbers AS number USING (phone_number),
    LATERAL (SELECT ('{"id":0' || item_tail)::json AS shown) AS parsed
  WHERE (items.status::text, items.updated_at, items.internal_name, items.reporting_group)
    IS DISTINCT FROM
    (shown ->> 'status', (shown ->> 'updatedAt')::timestamptz, shown ->> 'internalName', shown ->> 'reportingGroup')
    OR items.business_profile_id <> number.business_profile_id`;

/** Selects surplus and missing postings. */
const postingsThatDiffer = (sql: Sql) => sql`
  WITH truth AS (
    SELECT phone_number, carrier, feature, detailed_status, items.status, business_profile_id, reporting_group,
      internal_name
    FROM carrier_statuses JOIN items USING (phone_number)
    UNION ALL
    SELECT DISTINCT phone_number, '', feature, detailed_status, items.status, business_profile_id, reporting_group,
      internal_name
    FROM items LEFT JOIN carrier_statuses USING (phone_number)
  ), listed AS (
    SELECT phone_number, carrier, feature, detailed_status, status, business_profile_id, reporting_group, internal_name
    FROM postings JOIN terms ON terms.id = term_id
  )
  (TABLE truth EXCEPT ALL TABLE listed) UNION ALL (TABLE listed EXCEPT ALL TABLE truth)`;

/** Selects items with wrong term ids. Postings have no index by number alone, so all are read at once. */
const termIdsThatDiffer = (sql: Sql) => sql`
  SELECT phone_number
  FROM items LEFT JOIN (
    SELECT phone_number, array_agg(term_id ORDER BY term_id) AS listed FROM postings GROUP BY phone_number
  ) AS postings USING (phone_number)
  WHERE term_ids IS DISTINCT FROM listed`;
