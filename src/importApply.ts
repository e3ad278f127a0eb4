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
  await findChanges(sql);
  await deriveKinds(sql);
  const isRebuilt = await isWorthRebuilding(sql);
  const suspended = await suspendTriggers(sql, isRebuilt);
  await updateNumbers(sql);
  await insertNumbers(sql);
  await sql`SET CONSTRAINTS carrier_status_has_number IMMEDIATE`;
  for (const { table, trigger } of suspended) await sql`ALTER TABLE ${sql(table)} ENABLE TRIGGER ${sql(trigger)}`;
  if (isRebuilt) await sql`SELECT rebuild_listings()`;
}

/** Listing a number costs, index by index, as much as making some others' listings anew. */
const NUMBERS_REBUILT_FOR_ONE = 4;
/** Fewer than this are listed fast enough anyhow. */
const FEWEST_REBUILT_FOR = 10_000;

/** Whether it takes less time to make all listings anew than to change those of the changed numbers; for owners only. */
async function isWorthRebuilding(sql: TransactionSql): Promise<boolean> {
  const [row] = await sql<{ is_worth: boolean }[]>`
    SELECT changed >= ${FEWEST_REBUILT_FOR} AND is_owned AND ${NUMBERS_REBUILT_FOR_ONE} * changed >= (
      SELECT count(*) FROM (SELECT FROM branded_phone_numbers LIMIT ${NUMBERS_REBUILT_FOR_ONE} * changed + 1) AS number
    ) AS is_worth
    FROM
      (SELECT (SELECT count(*) FROM added) + (SELECT count(*) FROM differing) AS changed) AS counts,
      (SELECT pg_has_role(relowner, 'USAGE') AS is_owned FROM pg_class WHERE oid = 'listings'::regclass) AS owner`;
  return row?.is_worth ?? false;
}

/**
 * Switches triggers off until the import's writing is done, or undone. Those that derive a number's columns work row by
 * row; the import derives them by the same functions for all rows at once. And numbers need not be listed one by one
 * before all are. It takes the tables' owner; for anyone else the triggers do the work, and do it right.
 */
async function suspendTriggers(sql: TransactionSql, isRebuilt: boolean): Promise<{ table: string; trigger: string }[]> {
  const triggers = await sql<{ table: string; trigger: string }[]>`
    SELECT relname AS table, tgname AS trigger
    FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
    WHERE tgrelid IN ('branded_phone_numbers'::regclass, 'carrier_statuses'::regclass)
      AND (tgname LIKE 'derive%' OR (${isRebuilt} AND tgname LIKE 'list%'))
      AND pg_has_role(relowner, 'USAGE')`;
  for (const { table, trigger } of triggers) await sql`ALTER TABLE ${sql(table)} DISABLE TRIGGER ${sql(trigger)}`;
  return triggers;
}

async function upsertBusinessProfiles(sql: TransactionSql): Promise<void> {
  await sql`
    INSERT INTO business_profiles AS profile (id, business_name, status)
    SELECT DISTINCT business_profile_id, business_name, business_status FROM staged
    ON CONFLICT (id) DO UPDATE SET business_name = excluded.business_name, status = excluded.status
    WHERE (profile.business_name, profile.status) <> (excluded.business_name, excluded.status)`;
}

/** Tells the numbers that were there before and differ in anything from those that were not there. */
async function findChanges(sql: TransactionSql): Promise<void> {
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
  await sql`
    CREATE TEMPORARY TABLE added ON COMMIT DROP AS
    SELECT * FROM staged
    WHERE NOT EXISTS (SELECT FROM branded_phone_numbers AS number WHERE number.phone_number = staged.phone_number)
    ORDER BY phone_number`;
  await sql`ANALYZE differing (phone_number)`;
  await sql`ANALYZE added (phone_number)`;
}

/** Numbers have the same few kinds of entries over and over: the facets of each kind are found once. */
async function deriveKinds(sql: TransactionSql): Promise<void> {
  await sql`
    CREATE TEMPORARY TABLE given_kinds ON COMMIT DROP AS
    SELECT carriers, features, detailed_statuses, overall_status(detailed_statuses) AS status
    FROM (TABLE differing UNION ALL TABLE added) AS changed GROUP BY carriers, features, detailed_statuses`;
  await sql`
    INSERT INTO facets (carrier, feature, detailed_status, status)
    SELECT carrier, feature, detailed_status, status
    FROM given_kinds CROSS JOIN unnest(carriers, features, detailed_statuses) AS entry (carrier, feature, detailed_status)
    UNION
    SELECT NULL, NULL, NULL, status FROM given_kinds
    ORDER BY 1, 2, 3
    ON CONFLICT DO NOTHING`;
  await sql`ANALYZE facets`;
  await sql`
    CREATE TEMPORARY TABLE kinds ON COMMIT DROP AS
    SELECT carriers, features, detailed_statuses, derived.*
    FROM given_kinds CROSS JOIN facets_of_entries(carriers, features, detailed_statuses) AS derived`;
  await sql`ANALYZE kinds`;
}

/** The numbers that were there before and differ. */
async function updateNumbers(sql: TransactionSql): Promise<void> {
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
      updated_at = coalesce(differing.updated_at, now()),
      status = kinds.status,
      facet_ids = kinds.facet_ids,
      item_tail = item_tail_json(
        differing.internal_name, differing.branding_name_short, differing.branding_name_long,
        differing.reporting_group, kinds.status, json.entries,
        coalesce(differing.created_at, number.created_at), coalesce(differing.updated_at, now())
      )
    FROM differing
    JOIN kinds USING (carriers, features, detailed_statuses)
    CROSS JOIN LATERAL (
      SELECT array_agg(carrier) AS carriers, array_agg(feature) AS features,
        array_agg(detailed_status) AS detailed_statuses, array_agg(created_at) AS created_ats
      FROM carrier_statuses WHERE carrier_statuses.phone_number = differing.phone_number
    ) AS stored
    CROSS JOIN LATERAL json_of_entries(
      stored.carriers, stored.features, stored.detailed_statuses, stored.created_ats
    ) AS json
    WHERE number.phone_number = differing.phone_number`;
}

/**
 * The numbers that were not there before. Their entries go first, so that where triggers derive a number, they do so once
 * and from all its entries; the constraint that entries belong to a number waits for the commit.
 */
async function insertNumbers(sql: TransactionSql): Promise<void> {
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
      created_at, updated_at, status, facet_ids, item_tail
    )
    SELECT
      phone_number, coalesce(id, gen_random_uuid()), business_profile_id, internal_name, branding_name_short,
      branding_name_long, reporting_group, coalesce(created_at, now()), coalesce(updated_at, now()), status, facet_ids,
      item_tail_json(
        internal_name, branding_name_short, branding_name_long, reporting_group, status, json.entries,
        coalesce(created_at, now()), coalesce(updated_at, now())
      )
    FROM added
    JOIN kinds USING (carriers, features, detailed_statuses)
    CROSS JOIN LATERAL json_of_entries(carriers, features, detailed_statuses, created_ats) AS json`;
}
