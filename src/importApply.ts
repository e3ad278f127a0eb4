/** What an import changes in the tables, once all its lines are staged and good: a few statements over all of them. */
import { getTableColumns } from 'drizzle-orm';
import type { TransactionSql } from 'postgres';
import { aside, exchangeTables, mayExchange } from './importExchange.js';
import { brandedPhoneNumbers } from './schema.js';

const NUMBER_COLUMNS = Object.values(getTableColumns(brandedPhoneNumbers)).map(({ name }) => name);

/** Makes the tables hold what is staged, writing no row that stays as it is unless most of them change. */
export async function applyStaged(sql: TransactionSql): Promise<void> {
  await upsertBusinessProfiles(sql);
  await findChanges(sql);
  await deriveKinds(sql);
  if ((await isMost(sql)) && (await mayExchange(sql)) && (await exchangeTables(sql, () => fillTables(sql)))) return;
  await changeTables(sql);
}

async function upsertBusinessProfiles(sql: TransactionSql): Promise<void> {
  await sql`
    INSERT INTO business_profiles AS profile (id, business_name, status)
    SELECT DISTINCT business_profile_id, business_name, business_status FROM staged
    ON CONFLICT (id) DO UPDATE SET business_name = excluded.business_name, status = excluded.status
    WHERE (profile.business_name, profile.status) <> (excluded.business_name, excluded.status)`;
}

/** Finds the numbers that are new or differ in anything, and what the lines leave out of them. */
async function findChanges(sql: TransactionSql): Promise<void> {
  await sql`
    CREATE TEMPORARY TABLE changed ON COMMIT DROP AS
    SELECT
      staged.phone_number, number.phone_number IS NULL AS is_new, coalesce(staged.id, number.id, gen_random_uuid()) AS id,
      staged.business_profile_id, staged.internal_name, staged.branding_name_short, staged.branding_name_long,
      staged.reporting_group, coalesce(staged.created_at, number.created_at, now()) AS created_at,
      coalesce(staged.updated_at, now()) AS updated_at, carriers, features, detailed_statuses,
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
      OR (number.id, number.business_profile_id, number.created_at, number.updated_at)
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
      )
    ORDER BY phone_number`;
  await sql`ANALYZE changed (phone_number, is_new)`;
}

/** Numbers have the same few kinds of entries over and over: the facets of each kind are found once. */
async function deriveKinds(sql: TransactionSql): Promise<void> {
  await sql`
    CREATE TEMPORARY TABLE given_kinds ON COMMIT DROP AS
    SELECT carriers, features, detailed_statuses, overall_status(detailed_statuses) AS status
    FROM changed GROUP BY carriers, features, detailed_statuses`;
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

/** The changed numbers with what is derived from them, by the functions that the triggers use. */
function changedNumbers(sql: TransactionSql) {
  return sql`
    SELECT ${sql(NUMBER_COLUMNS)} FROM (
      SELECT
        changed.*, status, facet_ids,
        item_tail_json(
          internal_name, branding_name_short, branding_name_long, reporting_group, status, json.entries,
          created_at, updated_at
        ) AS item_tail
      FROM changed
      JOIN kinds USING (carriers, features, detailed_statuses)
      CROSS JOIN LATERAL json_of_entries(carriers, features, detailed_statuses, created_ats) AS json
    ) AS number`;
}

/** The entries of the changed numbers, in the columns' order. */
const changedEntries = (sql: TransactionSql) => sql`
  SELECT phone_number, unnest(carriers), unnest(features), unnest(detailed_statuses), unnest(created_ats) FROM changed`;
const ENTRY_COLUMNS = ['phone_number', 'carrier', 'feature', 'detailed_status', 'created_at'];

/** Fewer than this are changed fast enough anyhow. */
const FEWEST_EXCHANGED_FOR = 10_000;
/** Changing a number, index by index, takes as long as making so many anew. */
const NUMBERS_MADE_FOR_ONE = 2;

/** Whether so many numbers change that making all tables anew takes less time. */
async function isMost(sql: TransactionSql): Promise<boolean> {
  const [row] = await sql<{ is_most: boolean }[]>`
    SELECT count >= ${FEWEST_EXCHANGED_FOR} AND ${NUMBERS_MADE_FOR_ONE} * count >= (
      SELECT count(*) FROM (SELECT FROM branded_phone_numbers LIMIT ${NUMBERS_MADE_FOR_ONE} * count + 1) AS number
    ) AS is_most
    FROM (SELECT count(*) FROM changed) AS changes`;
  return row?.is_most ?? false;
}

/** Fills the tables made aside: with what stays, and with what is new or changed. */
async function fillTables(sql: TransactionSql): Promise<void> {
  const [numbers, entries] = [sql(NUMBER_COLUMNS), sql(ENTRY_COLUMNS)];
  const stays = sql`NOT EXISTS (SELECT FROM changed WHERE changed.phone_number = old.phone_number)`;
  await sql`
    INSERT INTO ${aside(sql, 'branded_phone_numbers')} (${numbers})
    SELECT ${numbers} FROM branded_phone_numbers AS old WHERE ${stays}
    UNION ALL
    (${changedNumbers(sql)})`;
  await sql`
    INSERT INTO ${aside(sql, 'carrier_statuses')} (${entries})
    SELECT ${entries} FROM carrier_statuses AS old WHERE ${stays}
    UNION ALL
    (${changedEntries(sql)})`;
  await sql`
    INSERT INTO ${aside(sql, 'listings')} (facet_id, phone_number, business_profile_id, reporting_group, internal_name)
    SELECT unnest(facet_ids), phone_number, business_profile_id, reporting_group, internal_name
    FROM ${aside(sql, 'branded_phone_numbers')}`;
}

/**
 * Changes, row by row, what differs. Entries go first, so that where triggers derive a number, they do so once and from
 * all its entries; the constraint that entries belong to a number waits for the numbers.
 */
async function changeTables(sql: TransactionSql): Promise<void> {
  const suspended = await suspendTriggers(sql);
  await sql`SET CONSTRAINTS carrier_status_has_number DEFERRED`;
  await sql`
    DELETE FROM carrier_statuses AS entry USING changed
    WHERE entry.phone_number = changed.phone_number AND NOT is_new AND NOT EXISTS (
      SELECT FROM unnest(carriers, features) AS given (carrier, feature)
      WHERE (given.carrier, given.feature) = (entry.carrier, entry.feature)
    )`;
  await sql`
    INSERT INTO carrier_statuses AS entry (${sql(ENTRY_COLUMNS)})
    ${changedEntries(sql)}
    ON CONFLICT (phone_number, carrier, feature) DO UPDATE
      SET detailed_status = excluded.detailed_status, created_at = excluded.created_at
    WHERE (entry.detailed_status, entry.created_at) <> (excluded.detailed_status, excluded.created_at)`;
  await sql`
    INSERT INTO branded_phone_numbers (${sql(NUMBER_COLUMNS)})
    ${changedNumbers(sql)}
    ON CONFLICT (phone_number) DO UPDATE
      SET ${sql.unsafe(NUMBER_COLUMNS.map((column) => `${column} = excluded.${column}`).join(', '))}`;
  await sql`SET CONSTRAINTS carrier_status_has_number IMMEDIATE`;
  for (const { table, trigger } of suspended) await sql`ALTER TABLE ${sql(table)} ENABLE TRIGGER ${sql(trigger)}`;
}

/**
 * Switches off, until the import's writing is done or undone, the triggers that derive a number's columns row by row: the
 * import derives them by the same functions for all rows at once. It takes the tables' owner; for anyone else the
 * triggers do the work, and do it right.
 */
async function suspendTriggers(sql: TransactionSql): Promise<{ table: string; trigger: string }[]> {
  const triggers = await sql<{ table: string; trigger: string }[]>`
    SELECT relname AS table, tgname AS trigger
    FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
    WHERE tgrelid IN ('branded_phone_numbers'::regclass, 'carrier_statuses'::regclass)
      AND tgname LIKE 'derive%' AND pg_has_role(relowner, 'USAGE')`;
  for (const { table, trigger } of triggers) await sql`ALTER TABLE ${sql(table)} DISABLE TRIGGER ${sql(trigger)}`;
  return triggers;
}
