/** The two parts of an import: business profiles, then numbers with their entries. */
import type { Transaction } from '../../database/transaction.js';
import { lockNumbersAndEntries } from './numberLocks.js';
import type { Part } from './staging.js';
import { columnsOf, type Row } from './steps.js';

/** Business profiles that are new or changed. */
export const changedProfiles: Part = {
  find: (sql) => sql<{ row: Row }[]>`
    SELECT concat_ws(E'\\t', id, business_name, status) AS row
    FROM (SELECT DISTINCT business_profile_id AS id, business_name, business_status AS status FROM staged) AS given
    WHERE NOT EXISTS (
      SELECT FROM business_profiles AS profile
      WHERE profile.id = given.id AND (profile.business_name, profile.status) = (given.business_name, given.status)
    )
    ORDER BY id`,
  async lock(sql, ids, wait) {
    return sql<{ key: string }[]>`
      WITH locked AS MATERIALIZED (
        SELECT id FROM business_profiles WHERE id = ANY (${ids}::uuid[])
        FOR NO KEY UPDATE ${wait ? sql`` : sql`SKIP LOCKED`}
      )
      SELECT id AS key FROM business_profiles WHERE id = ANY (${ids}::uuid[]) EXCEPT TABLE locked`;
  },
  async write(sql, rows) {
    await sql`
      INSERT INTO business_profiles AS profile (id, business_name, status)
      SELECT columns[1]::uuid, columns[2], columns[3] FROM ${columnsOf(sql, rows)}
      ON CONFLICT (id) DO UPDATE SET business_name = excluded.business_name, status = excluded.status
      WHERE (profile.business_name, profile.status) <> (excluded.business_name, excluded.status)`;
  },
};

/**
 * Returns the condition that an existing number differs from the given one, apart from its entries. An `updated_at`
 * before the number's is ignored, because `updated_at` only moves forward.
 */
const numberDiffers = (sql: Transaction) => sql`(
  (number.id, number.business_profile_id, number.created_at)
    <> (coalesce(given.id, number.id), given.business_profile_id, coalesce(given.created_at, number.created_at))
  OR given.updated_at > number.updated_at
  OR (number.internal_name, number.branding_name_short, number.branding_name_long, number.reporting_group)
    IS DISTINCT FROM
    (given.internal_name, given.branding_name_short, given.branding_name_long, given.reporting_group)
)`;

/**
 * Numbers that are new or changed. Their entries replace the existing ones.
 *
 * They are written in two passes, each in order of phone number: first 55 % of them, chosen by hash, then the rest. The
 * first pass appends within each term's range, which splits index pages and leaves them half full; the second pass
 * fills them. The indexes of postings then take 70 % of the space that they take after a single pass.
 */
export const changedNumbers: Part = {
  find: (sql) => sql<{ row: Row }[]>`
    SELECT array_to_string(ARRAY[
      given.phone_number, given.id::text, given.business_profile_id::text, given.internal_name,
      given.branding_name_short, given.branding_name_long, given.reporting_group, given.created_at::text,
      given.updated_at::text, carriers::text, features::text, detailed_statuses::text, created_ats::text
    ], E'\\t', '') AS row
    FROM staged AS given LEFT JOIN branded_phone_numbers AS number USING (phone_number)
    WHERE number.phone_number IS NULL OR ${numberDiffers(sql)} OR EXISTS (
      SELECT
      FROM unnest(carriers, features, detailed_statuses, created_ats)
        AS entry (carrier, feature, detailed_status, created_at)
      FULL JOIN (SELECT * FROM carrier_statuses WHERE phone_number = given.phone_number) AS kept USING (carrier, feature)
      WHERE (entry.detailed_status, coalesce(entry.created_at, kept.created_at))
        IS DISTINCT FROM (kept.detailed_status, kept.created_at)
    )
    ORDER BY abs(hashtext(given.phone_number) % 100) >= 55, given.phone_number`,
  lock: lockNumbersAndEntries,
  async write(sql, rows) {
    await sql`SET LOCAL branded_phone_numbers.defer = 'import'`;
    // New rows have no ON CONFLICT, which would add a fifth to the time: if another program has inserted the row
    // meanwhile, the step fails and is retried. Existing rows are looked up one by one: the plan may have been made when
    // the tables were empty, and a join would read all of them. The INSERT into deferred derives the numbers even if the
    // sources' triggers are disabled.
    await sql`
      WITH given AS MATERIALIZED (
        SELECT given.*, number.phone_number IS NULL AS is_new
        FROM (
          SELECT columns[1] COLLATE "C" AS phone_number, columns[2]::uuid AS id, columns[3]::uuid AS business_profile_id,
            columns[4] AS internal_name, columns[5] AS branding_name_short, columns[6] AS branding_name_long,
            columns[7] AS reporting_group, columns[8]::timestamptz AS created_at, columns[9]::timestamptz AS updated_at,
            columns[10]::text[] AS carriers, columns[11]::feature[] AS features,
            columns[12]::detailed_status[] AS detailed_statuses, columns[13]::timestamptz[] AS created_ats
          FROM ${columnsOf(sql, rows)}
        ) AS given LEFT JOIN LATERAL (
          SELECT phone_number FROM branded_phone_numbers WHERE phone_number = given.phone_number OFFSET 0
        ) AS number ON true
      ), old_numbers AS MATERIALIZED (
        SELECT phone_number FROM given WHERE NOT is_new
      ), entry AS MATERIALIZED (
        SELECT given.phone_number, entry.carrier, entry.feature, entry.detailed_status, kept.phone_number IS NULL AS is_new, coalesce(
          entry.created_at, CASE WHEN kept.detailed_status = entry.detailed_status THEN kept.created_at END, now()
        ) AS created_at
        FROM given CROSS JOIN unnest(carriers, features, detailed_statuses, created_ats)
          AS entry (carrier, feature, detailed_status, created_at)
        LEFT JOIN LATERAL (
          SELECT * FROM carrier_statuses AS kept
          WHERE (kept.phone_number, kept.carrier, kept.feature) = (given.phone_number, entry.carrier, entry.feature) OFFSET 0
        ) AS kept ON true
        WHERE NOT given.is_new
      ), inserted_numbers AS (
        INSERT INTO branded_phone_numbers (
          phone_number, id, business_profile_id, internal_name, branding_name_short, branding_name_long, reporting_group,
          created_at, updated_at
        )
        SELECT phone_number, coalesce(id, gen_random_uuid()), business_profile_id, internal_name, branding_name_short,
          branding_name_long, reporting_group, coalesce(created_at, now()), coalesce(updated_at, now())
        FROM given WHERE is_new
      ), updated_numbers AS (
        UPDATE branded_phone_numbers AS number SET
          id = coalesce(given.id, number.id), business_profile_id = given.business_profile_id,
          internal_name = given.internal_name, branding_name_short = given.branding_name_short,
          branding_name_long = given.branding_name_long, reporting_group = given.reporting_group,
          created_at = coalesce(given.created_at, number.created_at),
          updated_at = greatest(given.updated_at, number.updated_at)
        FROM given
        WHERE number.phone_number = ANY (ARRAY(TABLE old_numbers)) AND given.phone_number = number.phone_number
          AND ${numberDiffers(sql)}
      ), deleted_entries AS (
        DELETE FROM carrier_statuses AS entry USING given
        WHERE entry.phone_number = ANY (ARRAY(TABLE old_numbers)) AND given.phone_number = entry.phone_number AND NOT EXISTS (
          SELECT FROM unnest(carriers, features) AS wanted (carrier, feature)
          WHERE (wanted.carrier, wanted.feature) = (entry.carrier, entry.feature)
        )
      ), inserted_entries AS (
        INSERT INTO carrier_statuses (phone_number, carrier, feature, detailed_status, created_at)
        SELECT phone_number, entry.carrier, entry.feature, entry.detailed_status, coalesce(entry.created_at, now())
        FROM given CROSS JOIN unnest(carriers, features, detailed_statuses, created_ats)
          AS entry (carrier, feature, detailed_status, created_at)
        WHERE given.is_new
        UNION ALL
        SELECT phone_number, carrier, feature, detailed_status, created_at FROM entry WHERE is_new
      ), updated_entries AS (
        UPDATE carrier_statuses AS kept SET detailed_status = entry.detailed_status, created_at = entry.created_at
        FROM entry
        WHERE kept.phone_number = ANY (ARRAY(TABLE old_numbers))
          AND (entry.phone_number, entry.carrier, entry.feature) = (kept.phone_number, kept.carrier, kept.feature)
          AND (entry.detailed_status, entry.created_at) <> (kept.detailed_status, kept.created_at)
      )
      INSERT INTO deferred SELECT array_agg(phone_number) FROM given`;
  },
};
