/** What an import changes in the tables, once all its lines are staged and good: a few statements over all of them. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { TransactionSql } from 'postgres';

const LOCK_NOT_AVAILABLE = '55P03';
/** Pause before another attempt at the locks: longer than most transactions of others. */
const LOCK_PAUSE = 20; // ms

/**
 * Keeps all other writers out until the transaction ends, so that nothing comes between what is compared and what is
 * written; readers go on. Other imports wait here too. Having one lock, it never waits for another: it could be waited
 * for in turn.
 */
export async function lockOutWriters(sql: TransactionSql): Promise<void> {
  for (;;) {
    try {
      // In a scope of its own: postgres.js fails a whole transaction for any query of it that failed outside of one.
      await sql.savepoint(async (scope) => {
        await scope`LOCK TABLE carrier_statuses IN SHARE ROW EXCLUSIVE MODE`;
        await scope`LOCK TABLE branded_phone_numbers, business_profiles IN SHARE ROW EXCLUSIVE MODE NOWAIT`;
      });
      return;
    } catch (error) {
      if ((error as { code?: string }).code !== LOCK_NOT_AVAILABLE) throw error;
      await sleep(LOCK_PAUSE);
    }
  }
}

/** Makes the tables hold what is staged, writing no row that stays as it is. */
export async function applyStaged(sql: TransactionSql): Promise<void> {
  await upsertBusinessProfiles(sql);
  await updateNumbers(sql);
  await insertNumbers(sql);
}

async function upsertBusinessProfiles(sql: TransactionSql): Promise<void> {
  await sql`
    INSERT INTO business_profiles AS profile (id, business_name, status)
    SELECT DISTINCT business_profile_id, business_name, business_status FROM staged
    ON CONFLICT (id) DO UPDATE SET business_name = excluded.business_name, status = excluded.status
    WHERE (profile.business_name, profile.status) <> (excluded.business_name, excluded.status)`;
}

/** The numbers that were there before and differ in anything. */
async function updateNumbers(sql: TransactionSql): Promise<void> {
  await sql`
    CREATE TEMPORARY TABLE differing ON COMMIT DROP AS
    SELECT staged.*
    FROM staged JOIN branded_phone_numbers AS number USING (phone_number)
    WHERE
      (number.id, number.business_profile_id, number.created_at, number.updated_at)
        <> (coalesce(staged.id, number.id), staged.business_profile_id,
            coalesce(staged.created_at, number.created_at), coalesce(staged.updated_at, number.updated_at))
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
  await sql`ANALYZE differing`;
  await sql`
    DELETE FROM carrier_statuses AS entry USING differing
    WHERE entry.phone_number = differing.phone_number AND NOT EXISTS (
      SELECT FROM unnest(carriers, features) AS given (carrier, feature)
      WHERE (given.carrier, given.feature) = (entry.carrier, entry.feature)
    )`;
  await sql`
    INSERT INTO carrier_statuses AS entry (phone_number, carrier, feature, detailed_status, created_at)
    SELECT
      phone_number, given.carrier, given.feature, given.detailed_status,
      coalesce(given.created_at, CASE WHEN before.detailed_status = given.detailed_status THEN before.created_at END, now())
    FROM differing
    CROSS JOIN unnest(carriers, features, detailed_statuses, created_ats)
      AS given (carrier, feature, detailed_status, created_at)
    LEFT JOIN carrier_statuses AS before USING (phone_number, carrier, feature)
    ON CONFLICT (phone_number, carrier, feature) DO UPDATE
      SET detailed_status = excluded.detailed_status, created_at = excluded.created_at
    WHERE (entry.detailed_status, entry.created_at) <> (excluded.detailed_status, excluded.created_at)`;
  await sql`
    UPDATE branded_phone_numbers AS number
    SET
      id = coalesce(differing.id, number.id),
      business_profile_id = differing.business_profile_id,
      internal_name = differing.internal_name,
      branding_name_short = differing.branding_name_short,
      branding_name_long = differing.branding_name_long,
      reporting_group = differing.reporting_group,
      created_at = coalesce(differing.created_at, number.created_at),
      updated_at = coalesce(differing.updated_at, now())
    FROM differing
    WHERE number.phone_number = differing.phone_number`;
}

/**
 * The numbers that were not there before. Their entries go first, so that each number is derived once and from all its
 * entries; the constraint that entries belong to a number waits for the commit.
 */
async function insertNumbers(sql: TransactionSql): Promise<void> {
  await sql`
    CREATE TEMPORARY TABLE added ON COMMIT DROP AS
    SELECT * FROM staged
    WHERE NOT EXISTS (SELECT FROM branded_phone_numbers AS number WHERE number.phone_number = staged.phone_number)
    ORDER BY phone_number`;
  await sql`ANALYZE added`;
  await sql`SET CONSTRAINTS carrier_status_has_number DEFERRED`;
  await sql`
    INSERT INTO carrier_statuses (phone_number, carrier, feature, detailed_status, created_at)
    SELECT phone_number, given.carrier, given.feature, given.detailed_status, coalesce(given.created_at, now())
    FROM added
    CROSS JOIN unnest(carriers, features, detailed_statuses, created_ats)
      AS given (carrier, feature, detailed_status, created_at)`;
  await sql`
    INSERT INTO branded_phone_numbers (
      phone_number, id, business_profile_id, internal_name, branding_name_short, branding_name_long, reporting_group,
      created_at, updated_at
    )
    SELECT
      phone_number, coalesce(id, gen_random_uuid()), business_profile_id, internal_name, branding_name_short,
      branding_name_long, reporting_group, coalesce(created_at, now()), coalesce(updated_at, now())
    FROM added`;
}
