/**
 * Many numbers with a realistic skew: most have one of a few profiles, groups and names, and some statuses are rare.
 */
import type { PendingQuery, Row, Sql } from 'postgres';

/** Adds an entry with a distinct carrier to each of `count` numbers, like a mistake in imported data. */
export async function addCarriers(sql: Sql, count: number): Promise<void> {
  await sql`SET session_replication_role = replica`;
  await sql`
    CREATE TEMPORARY TABLE mistaken AS
    SELECT phone_number, reporting_group, internal_name, business_profile_id, status, 'Mistake ' || row_number() OVER ()
      AS carrier, (enum_range(NULL::detailed_status))[1 + (hashtext(phone_number) & 7)] AS detailed_status
    FROM items ORDER BY phone_number DESC LIMIT ${count}`;
  await sql`
    WITH term AS (
      INSERT INTO terms (id, carrier, feature, detailed_status, status)
      SELECT term_id(carrier, 'spamRemediation', detailed_status, status), carrier, 'spamRemediation', detailed_status, status
      FROM mistaken RETURNING id, carrier
    )
    INSERT INTO postings (term_id, phone_number, business_profile_id, reporting_group, internal_name)
    SELECT id, phone_number, business_profile_id, reporting_group, internal_name FROM term JOIN mistaken USING (carrier)`;
}

/**
 * Fills the empty tables that the list reads with `count` numbers, without triggers, because they would take minutes.
 * The planner's statistics are those of the first hundredth of the rows.
 */
export async function fillSkewed(sql: Sql, count: number): Promise<void> {
  await sql`SET session_replication_role = replica`;
  await sql`SET work_mem = '256MB'`;
  await sql`SELECT setseed(0.42)`;
  for (const table of ['business_profiles', 'items', 'postings', 'terms']) {
    await sql`ALTER TABLE ${sql(table)} SET (autovacuum_enabled = false)`;
  }
  await sql`
    INSERT INTO business_profiles (id, business_name, status)
    SELECT ('00000000-0000-4000-8000-' || lpad(i::text, 12, '0'))::uuid, 'Company ' || i, 'approved'
    FROM generate_series(1, 1000) AS i`;
  await sql`
    CREATE TEMPORARY TABLE number AS
    SELECT
      '+1' || (2000000000 + i * 7)::text AS phone_number,
      ('00000000-0000-4000-8000-' || lpad(floor(power(1000, random()))::int::text, 12, '0'))::uuid AS business_profile_id,
      'Group ' || floor(power(500, random()))::int AS reporting_group,
      'Line ' || floor(power(5000, random()))::int AS internal_name,
      random() < 0.8 AS is_approved, random() AS breadth
    FROM generate_series(1, ${count}) AS i`;
  await sql`
    CREATE TEMPORARY TABLE entry AS
    SELECT phone_number, carrier, feature, CASE
      WHEN is_approved OR chance < 0.6 THEN 'approved.optIn' WHEN chance < 0.7 THEN 'approved.optOut'
      WHEN chance < 0.76 THEN 'pending.initialOptIn' WHEN chance < 0.82 THEN 'pending.optIn'
      WHEN chance < 0.86 THEN 'submitted.optIn' WHEN chance < 0.9 THEN 'submitted.optOut'
      WHEN chance < 0.94 THEN 'pending.optOut' WHEN chance < 0.98 THEN 'rejected.optIn' ELSE 'rejected.optOut'
    END::detailed_status AS detailed_status
    FROM number
    CROSS JOIN unnest('{AT&T,T-Mobile,Verizon,US Cellular,Rare Mobile}'::text[]) AS carrier
    CROSS JOIN unnest(enum_range(NULL::feature)) AS feature
    CROSS JOIN LATERAL (SELECT random() AS chance, random() AS rarity WHERE phone_number IS NOT NULL) AS dice
    WHERE (carrier <> 'US Cellular' OR breadth < 0.3) AND (carrier <> 'Rare Mobile' OR rarity < 0.0003)
      AND (feature = 'brandedCallerId' OR breadth < 0.25)`;
  await sql`
    CREATE TEMPORARY TABLE derived AS
    SELECT phone_number, overall_status(array_agg(detailed_status)) AS status FROM entry GROUP BY phone_number`;
  await sql`
    CREATE TEMPORARY TABLE term AS
    SELECT term_id(carrier, feature, detailed_status, status), *
    FROM (
      SELECT phone_number, carrier, feature, detailed_status, status FROM entry JOIN derived USING (phone_number)
      UNION
      SELECT phone_number, '', feature, detailed_status, status FROM entry JOIN derived USING (phone_number)
    ) AS term`;
  await sql`
    INSERT INTO terms (id, carrier, feature, detailed_status, status)
    SELECT DISTINCT term_id, carrier, feature, detailed_status, status FROM term`;
  await sql`
    CREATE TEMPORARY TABLE listed AS
    SELECT phone_number, array_agg(term_id) AS term_ids FROM term GROUP BY phone_number`;
  const last = `+1${2_000_000_000 + Math.floor(count / 100) * 7}`;
  await list(sql`phone_number <= ${last}`);
  await sql`ANALYZE`;
  // Building the indexes after the rows are written is much faster than updating them row by row.
  const indexes = await sql`
    SELECT indexname AS name, indexdef AS definition FROM pg_indexes
    WHERE schemaname = 'public' AND indexname ~ '^(items|postings)_by_'`;
  for (const { name } of indexes) await sql`DROP INDEX ${sql(name)}`;
  await list(sql`phone_number > ${last}`);
  for (const { definition } of indexes) await sql.unsafe(definition);
  // Marks pages as all-visible, as autovacuum would, but leaves the column statistics as they are.
  await sql`VACUUM (INDEX_CLEANUP off) items, postings`;

  async function list(part: PendingQuery<Row[]>) {
    await sql`
      INSERT INTO items
        (phone_number, id, business_profile_id, reporting_group, internal_name, status, term_ids, item_tail, updated_at)
      SELECT phone_number, gen_random_uuid(), business_profile_id, reporting_group, internal_name, status, term_ids,
        repeat(' ', 700), now()
      FROM number JOIN derived USING (phone_number) JOIN listed USING (phone_number)
      WHERE ${part} ORDER BY phone_number`;
    await sql`
      INSERT INTO postings (term_id, phone_number, business_profile_id, reporting_group, internal_name)
      SELECT unnest(term_ids), phone_number, business_profile_id, reporting_group, internal_name
      FROM number JOIN listed USING (phone_number) WHERE ${part} ORDER BY phone_number`;
  }
}
