/** What an import changes in the tables, once all its lines are staged and valid: a few statements for all of them. */
import type { TransactionSql } from 'postgres';

/** The fraction of the time, measured on a first import, that passes before deriving begins. */
const DONE_BEFORE_DERIVING = 0.4;
/** Numbers that are derived between progress reports. */
const BATCH_SIZE = 10_000;

/**
 * Brings the sources in line with what is staged, without writing unchanged rows, and derives what it wrote.
 * @param onProgress is called now and then with the fraction that is done, 0 to 1
 */
export async function applyStaged(sql: TransactionSql, onProgress: (part: number) => void): Promise<void> {
  await upsertBusinessProfiles(sql);
  await findChanges(sql);
  const isDerivedHere = await ownsSources(sql);
  if (isDerivedHere) await switchTriggers(sql, 'DISABLE');
  await writeChanges(sql);
  if (!isDerivedHere) return;
  onProgress(DONE_BEFORE_DERIVING);
  await deriveChanged(sql, (part) => onProgress(DONE_BEFORE_DERIVING + (1 - DONE_BEFORE_DERIVING) * part));
  await switchTriggers(sql, 'ENABLE');
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
 */
async function findChanges(sql: TransactionSql): Promise<void> {
  await sql`
    CREATE TEMPORARY TABLE changed ON COMMIT DROP AS
    SELECT
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
      )
    ORDER BY phone_number`;
  await sql`ANALYZE changed (phone_number, is_new)`;
}

/**
 * Writes what differs, numbers and entries in one statement: where triggers derive the numbers, they see them as they will
 * be, so a given `updated_at` stays. New rows can't conflict, and checking for a conflict would cost a fifth of the time.
 */
async function writeChanges(sql: TransactionSql): Promise<void> {
  await sql`
    WITH new_numbers AS (
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
      FROM changed WHERE changed.phone_number = number.phone_number AND NOT is_new
    ), gone_entries AS (
      DELETE FROM carrier_statuses AS entry USING changed
      WHERE entry.phone_number = changed.phone_number AND NOT is_new AND NOT EXISTS (
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

/** The tables whose triggers derive, and these triggers; an operator's own stay as they are. */
const SOURCES = ['branded_phone_numbers', 'carrier_statuses'];
const DERIVING = ['derive_inserted', 'derive_updated', 'derive_deleted'];

/** Whether the role may switch off triggers, which only the tables' owner may; for any other role the triggers derive. */
async function ownsSources(sql: TransactionSql): Promise<boolean> {
  const [row] = await sql<[{ owns: boolean }]>`
    SELECT bool_and(pg_has_role(relowner, 'USAGE')) AS owns FROM pg_class WHERE oid = ANY (${SOURCES}::text[]::regclass[])`;
  return row.owns;
}

/**
 * Switches off those triggers on the sources until the import's writing is done or undone: they would derive the numbers
 * after each statement, and the import does it once.
 */
async function switchTriggers(sql: TransactionSql, state: 'ENABLE' | 'DISABLE'): Promise<void> {
  for (const table of SOURCES) {
    const changes = DERIVING.map((trigger) => `${state} TRIGGER ${trigger}`);
    await sql`ALTER TABLE ${sql(table)} ${sql.unsafe(changes.join(', '))}`;
  }
}

/**
 * Derives what was written, in two passes, each in order: PostgreSQL splits the pages of an index in half as the first one
 * adds to the end of each range, and the second one, with a little less than half of the numbers, fills them up. The
 * indexes of the postings take seven tenths of the space that they take after one pass.
 */
async function deriveChanged(sql: TransactionSql, onProgress: (part: number) => void): Promise<void> {
  const [{ total }] = await sql<[{ total: number }]>`SELECT count(*)::int AS total FROM changed`;
  await sql`
    DECLARE changed_numbers NO SCROLL CURSOR FOR
    SELECT phone_number FROM changed ORDER BY hashtext(phone_number) % 10 > 0, phone_number`;
  for (let done = 0; done < total; ) {
    const rows = await sql<{ phone_number: string }[]>`FETCH ${sql.unsafe(String(BATCH_SIZE))} FROM changed_numbers`;
    // Not the rows themselves, of which each number has several.
    await sql`SELECT count(*) FROM derive(${`{${rows.map(({ phone_number }) => phone_number)}}`}::text[])`;
    done += rows.length;
    onProgress(done / total);
  }
}
