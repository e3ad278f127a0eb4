/** What an import changes in the tables, once all its lines are staged and valid: a few statements for all of them. */
import type { TransactionSql } from 'postgres';

/** Numbers that are written and derived between progress reports. */
const STEP_SIZE = 10_000;

/**
 * Brings the sources in line with what is staged, without writing unchanged rows, and derives what it wrote: once, not after
 * each kind of change (drizzle/0001_derive.sql).
 * @param onProgress is called now and then with the fraction that is done, 0 to 1
 */
export async function applyStaged(sql: TransactionSql, onProgress: (part: number) => void): Promise<void> {
  // Or each step might read all numbers, and each staged number all entries.
  await sql`SET LOCAL enable_seqscan = off`;
  await upsertBusinessProfiles(sql);
  const steps = await findChanges(sql);
  await sql`SET LOCAL branded_phone_numbers.defer = 'on'`;
  for (let step = 0; step < steps; step++) {
    await sql`SET CONSTRAINTS derive_deferred DEFERRED`;
    await writeChanges(sql, step);
    // Where somebody has switched off the triggers on the sources, too.
    await sql`INSERT INTO deferred SELECT array_agg(phone_number) FROM changed WHERE step = ${step}`;
    await sql`SET CONSTRAINTS derive_deferred IMMEDIATE`;
    onProgress((step + 1) / steps);
  }
}

async function upsertBusinessProfiles(sql: TransactionSql): Promise<void> {
  await sql`
    INSERT INTO business_profiles AS profile (id, business_name, status)
    SELECT DISTINCT business_profile_id, business_name, business_status FROM staged
    ON CONFLICT (id) DO UPDATE SET business_name = excluded.business_name, status = excluded.status
    WHERE (profile.business_name, profile.status) <> (excluded.business_name, excluded.status)`;
}

/**
 * Finds the numbers that are new or differ in anything, and fills in what the lines leave out. An `updated_at` earlier than
 * the number's does not count: the item's moves forward anyway.
 * @returns in how many steps they should be written. There are two passes over the numbers, each in order: PostgreSQL splits
 * the pages of an index in half as the first one adds to the end of each range, and the second one, with a little less than
 * half of the numbers, fills them up. The postings' indexes take seven tenths of the space that they take after one pass.
 */
async function findChanges(sql: TransactionSql): Promise<number> {
  await sql`
    CREATE TEMPORARY TABLE changed ON COMMIT DROP AS
    SELECT
      (row_number() OVER (ORDER BY hashtext(staged.phone_number) % 10 > 0, staged.phone_number) - 1) / ${STEP_SIZE} AS step,
      staged.phone_number, number.phone_number IS NULL AS is_new, coalesce(staged.id, number.id, gen_random_uuid()) AS id,
      staged.business_profile_id, staged.internal_name, staged.branding_name_short, staged.branding_name_long,
      staged.reporting_group, coalesce(staged.created_at, number.created_at, now()) AS created_at,
      coalesce(greatest(staged.updated_at, number.updated_at), now()) AS updated_at,
      carriers, features, detailed_statuses,
      CASE WHEN array_position(created_ats, NULL) IS NULL THEN created_ats ELSE ARRAY(
        SELECT coalesce(given.created_at, before.created_at, now())
        FROM unnest(carriers, features, detailed_statuses, created_ats) WITH ORDINALITY
          AS given (carrier, feature, detailed_status, created_at, ordinality)
        LEFT JOIN carrier_statuses AS before
          ON before.phone_number = staged.phone_number
            AND (before.carrier, before.feature, before.detailed_status)
              = (given.carrier, given.feature, given.detailed_status)
        ORDER BY ordinality
      ) END AS created_ats
    FROM staged LEFT JOIN branded_phone_numbers AS number USING (phone_number)
    WHERE number.phone_number IS NULL
      OR (number.id, number.business_profile_id, number.created_at)
        <> (coalesce(staged.id, number.id), staged.business_profile_id, coalesce(staged.created_at, number.created_at))
      OR staged.updated_at > number.updated_at
      OR (number.internal_name, number.branding_name_short, number.branding_name_long, number.reporting_group)
        IS DISTINCT FROM
        (staged.internal_name, staged.branding_name_short, staged.branding_name_long, staged.reporting_group)
      OR (SELECT count(*) FROM carrier_statuses AS entry WHERE entry.phone_number = staged.phone_number)
        <> cardinality(staged.carriers)
      OR EXISTS (
        SELECT FROM unnest(carriers, features, detailed_statuses, created_ats)
          AS given (carrier, feature, detailed_status, created_at)
        WHERE NOT EXISTS (
          SELECT FROM carrier_statuses AS entry
          WHERE entry.phone_number = staged.phone_number
            AND (entry.carrier, entry.feature, entry.detailed_status) =
              (given.carrier, given.feature, given.detailed_status)
            AND entry.created_at = coalesce(given.created_at, entry.created_at)
        )
      )`;
  await sql`CREATE INDEX ON changed (step)`;
  await sql`ANALYZE changed (step, phone_number, is_new)`;
  const [{ steps }] = await sql<[{ steps: number }]>`SELECT coalesce(max(step) + 1, 0)::int AS steps FROM changed`;
  return steps;
}

/**
 * Writes what differs in a step, numbers and entries in one statement. New rows can't conflict, and checking for a conflict
 * would cost a fifth of the time. The numbers stand in arrays because the planner doesn't know how many rows there are: an
 * ANALYZE meanwhile counts those of others only.
 */
async function writeChanges(sql: TransactionSql, step: number): Promise<void> {
  await sql`
    WITH changed AS MATERIALIZED (
      SELECT * FROM pg_temp.changed WHERE step = ${step}
    ), old_numbers AS MATERIALIZED (
      SELECT phone_number FROM changed WHERE NOT is_new ORDER BY 1
    ), new_numbers AS (
      INSERT INTO branded_phone_numbers (
        phone_number, id, business_profile_id, internal_name, branding_name_short, branding_name_long, reporting_group,
        created_at, updated_at
      )
      SELECT phone_number, id, business_profile_id, internal_name, branding_name_short, branding_name_long, reporting_group,
        created_at, updated_at
      FROM changed WHERE is_new
    ), changed_numbers AS (
      UPDATE branded_phone_numbers AS number SET
        id = changed.id, business_profile_id = changed.business_profile_id, internal_name = changed.internal_name,
        branding_name_short = changed.branding_name_short, branding_name_long = changed.branding_name_long,
        reporting_group = changed.reporting_group, created_at = changed.created_at, updated_at = changed.updated_at
      FROM changed
      WHERE changed.phone_number = number.phone_number AND number.phone_number = ANY (ARRAY(TABLE old_numbers))
    ), gone_entries AS (
      DELETE FROM carrier_statuses AS entry USING changed
      WHERE entry.phone_number = changed.phone_number AND entry.phone_number = ANY (ARRAY(TABLE old_numbers)) AND NOT EXISTS (
        SELECT FROM unnest(carriers, features) AS given (carrier, feature)
        WHERE (given.carrier, given.feature) = (entry.carrier, entry.feature)
      )
    ), new_entries AS (
      INSERT INTO carrier_statuses (phone_number, carrier, feature, detailed_status, created_at)
      SELECT phone_number, unnest(carriers), unnest(features), unnest(detailed_statuses), unnest(created_ats)
      FROM changed WHERE is_new
    )
    INSERT INTO carrier_statuses AS entry (phone_number, carrier, feature, detailed_status, created_at)
    SELECT phone_number, unnest(carriers), unnest(features), unnest(detailed_statuses), unnest(created_ats)
    FROM changed WHERE NOT is_new
    ON CONFLICT (phone_number, carrier, feature) DO UPDATE
      SET detailed_status = excluded.detailed_status, created_at = excluded.created_at
    WHERE (entry.detailed_status, entry.created_at) <> (excluded.detailed_status, excluded.created_at)`;
}
