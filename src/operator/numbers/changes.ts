/** The two parts of an import: business profiles, then numbers with their entries. */
import type { Transaction } from '../../database/connection.js';
import { lockToWrite } from './numberLocks.js';
import { type Columns, givenKeys, givenRows, lockGiven, type Row, rowOfGiven } from './rows.js';
import { NUMBER_COLUMNS } from './stagedNumbers.js';
import type { Part } from './staging.js';

const PROFILE_COLUMNS: Columns = { id: 'uuid', business_name: 'text', status: 'text' };

export const changedProfiles: Part = {
  noun: 'changed business profile',
  find: (sql) => sql<{ row: Row }[]>`
    SELECT ${rowOfGiven(sql, PROFILE_COLUMNS, sql`0`)} AS row
    FROM (SELECT DISTINCT business_profile_id AS id, business_name, business_status AS status FROM staged) AS given
    WHERE NOT EXISTS (
      SELECT FROM business_profiles AS profile
      WHERE profile.id = given.id AND (profile.business_name, profile.status) = (given.business_name, given.status)
    )
    ORDER BY id`,
  lock(sql, waits) {
    const existing = sql`SELECT id FROM business_profiles WHERE id = ANY (${givenKeys(sql)}::uuid[])`;
    return [lockGiven(sql, waits, existing, sql`FOR NO KEY UPDATE`)];
  },
  write: (sql) => [
    sql`
      INSERT INTO business_profiles AS profile (id, business_name, status)
      SELECT id, business_name, status FROM ${givenRows(sql, PROFILE_COLUMNS)}
      ON CONFLICT (id) DO UPDATE SET business_name = excluded.business_name, status = excluded.status
      WHERE (profile.business_name, profile.status) <> (excluded.business_name, excluded.status)`,
  ],
};

/** An `updated_at` before the number's is ignored, because `updated_at` only moves forward. */
const numberDiffers = (sql: Transaction) => sql`(
  (number.id, number.business_profile_id, number.created_at)
    <> (coalesce(given.id, number.id), given.business_profile_id, coalesce(given.created_at, number.created_at))
  OR given.updated_at > number.updated_at
  OR (number.internal_name, number.branding_name_short, number.branding_name_long, number.reporting_group)
    IS DISTINCT FROM
    (given.internal_name, given.branding_name_short, given.branding_name_long, given.reporting_group)
)`;

const entriesOfGiven = (sql: Transaction) => sql`
  unnest(given.carriers, given.features, given.detailed_statuses, given.created_ats)
    AS entry (carrier, feature, detailed_status, created_at)`;

const entryDiffers = (sql: Transaction) => sql`
  (entry.detailed_status, coalesce(entry.created_at, kept.created_at))
    IS DISTINCT FROM (kept.detailed_status, kept.created_at)`;

/**
 * Numbers that are new or changed. Their entries replace the existing ones.
 *
 * They are written in two passes, each in order of phone number: first 55 % of them, chosen by hash, then the rest. The
 * first pass appends within each term's range, which splits index pages and leaves them half full; the second pass
 * fills them. The indexes of postings then take 70 % of the space that they take after a single pass.
 */
export const changedNumbers: Part = {
  noun: 'number',
  find: (sql) => sql<{ row: Row }[]>`
    SELECT ${rowOfGiven(
      sql,
      NUMBER_COLUMNS,
      sql`cardinality(carriers) + (SELECT count(*) FROM carrier_statuses WHERE phone_number = given.phone_number)`,
    )} AS row
    FROM staged AS given LEFT JOIN branded_phone_numbers AS number USING (phone_number)
    WHERE number.phone_number IS NULL OR ${numberDiffers(sql)} OR EXISTS (
      SELECT
      FROM ${entriesOfGiven(sql)}
      FULL JOIN (SELECT * FROM carrier_statuses WHERE phone_number = given.phone_number) AS kept USING (carrier, feature)
      WHERE ${entryDiffers(sql)}
    )
    ORDER BY abs(hashtext(given.phone_number) % 100) >= 55, given.phone_number`,
  lock: lockToWrite,
  // The INSERT into deferred derives the numbers even if the sources' triggers are disabled.
  write: (sql) => [
    sql`SET LOCAL branded_phone_numbers.defer = 'import'`,
    updateNumbers(sql),
    insertNumbers(sql),
    sql`INSERT INTO deferred VALUES (${givenKeys(sql)})`,
  ],
};

/** Looks the given numbers up one by one: the plan may be from when the table was empty, and a join would read all of it. */
const givenThat = (sql: Transaction, condition: 'EXISTS' | 'NOT EXISTS') => sql`
  given AS MATERIALIZED (
    SELECT * FROM ${givenRows(sql, NUMBER_COLUMNS)} WHERE ${sql.unsafe(condition)} (
      SELECT FROM branded_phone_numbers AS number WHERE number.phone_number = given.phone_number OFFSET 0
    )
  )`;

/** Without ON CONFLICT, which takes a fifth longer: if another program inserted a row meanwhile, the step is retried. */
const insertNumbers = (sql: Transaction) => sql`
  WITH ${givenThat(sql, 'NOT EXISTS')}, inserted AS (
    INSERT INTO branded_phone_numbers (
      phone_number, id, business_profile_id, internal_name, branding_name_short, branding_name_long, reporting_group,
      created_at, updated_at
    )
    SELECT phone_number, coalesce(id, gen_random_uuid()), business_profile_id, internal_name, branding_name_short,
      branding_name_long, reporting_group, coalesce(created_at, now()), coalesce(updated_at, now())
    FROM given
  )
  INSERT INTO carrier_statuses (phone_number, carrier, feature, detailed_status, created_at)
  SELECT phone_number, carrier, feature, detailed_status, coalesce(entry.created_at, now())
  FROM given CROSS JOIN ${entriesOfGiven(sql)}`;

const updateNumbers = (sql: Transaction) => sql`
  WITH ${givenThat(sql, 'EXISTS')}, existing AS MATERIALIZED (
    SELECT phone_number FROM given
  ), entry AS MATERIALIZED (
    SELECT phone_number, entry.* FROM given CROSS JOIN ${entriesOfGiven(sql)}
  ), updated AS (
    UPDATE branded_phone_numbers AS number SET
      id = coalesce(given.id, number.id), business_profile_id = given.business_profile_id,
      internal_name = given.internal_name, branding_name_short = given.branding_name_short,
      branding_name_long = given.branding_name_long, reporting_group = given.reporting_group,
      created_at = coalesce(given.created_at, number.created_at),
      updated_at = greatest(given.updated_at, number.updated_at)
    FROM given
    WHERE number.phone_number = ANY (ARRAY(TABLE existing)) AND given.phone_number = number.phone_number
      AND ${numberDiffers(sql)}
  ), deleted AS (
    DELETE FROM carrier_statuses AS kept
    WHERE phone_number = ANY (ARRAY(TABLE existing)) AND NOT EXISTS (
      SELECT FROM entry WHERE (entry.phone_number, entry.carrier, entry.feature) = (kept.phone_number, kept.carrier, kept.feature)
    )
  )
  INSERT INTO carrier_statuses (phone_number, carrier, feature, detailed_status, created_at)
  SELECT phone_number, carrier, feature, entry.detailed_status, coalesce(entry.created_at, now())
  FROM entry LEFT JOIN LATERAL (
    SELECT detailed_status, created_at FROM carrier_statuses AS kept
    WHERE (kept.phone_number, kept.carrier, kept.feature) = (entry.phone_number, entry.carrier, entry.feature) OFFSET 0
  ) AS kept ON true
  WHERE ${entryDiffers(sql)}
  ON CONFLICT (phone_number, carrier, feature) DO UPDATE
  SET detailed_status = excluded.detailed_status, created_at = excluded.created_at`;
