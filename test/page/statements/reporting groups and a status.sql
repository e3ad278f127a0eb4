select items, count, last, has_next, until from (
  WITH wanted_terms AS MATERIALIZED (
    SELECT id FROM terms WHERE $1::text[] IS NULL AND carrier = '' AND ($2::text[]::feature[] IS NULL OR feature = ANY ($3::text[]::feature[]))
      AND ($4::text[]::detailed_status[] IS NULL OR detailed_status = ANY ($5::text[]::detailed_status[]))
      AND (
        $6::text[]::status[] IS NULL AND $7::text[]::detailed_status[] IS NULL
        OR status = ANY ($8::text[]::status[]) OR detailed_status = ANY ($9::text[]::detailed_status[])
      )
    UNION ALL
    SELECT term.id FROM unnest($10::text[]) AS wanted CROSS JOIN LATERAL (
      SELECT id FROM terms WHERE carrier = wanted AND ($11::text[]::feature[] IS NULL OR feature = ANY ($12::text[]::feature[]))
      AND ($13::text[]::detailed_status[] IS NULL OR detailed_status = ANY ($14::text[]::detailed_status[]))
      AND (
        $15::text[]::status[] IS NULL AND $16::text[]::detailed_status[] IS NULL
        OR status = ANY ($17::text[]::status[]) OR detailed_status = ANY ($18::text[]::detailed_status[])
      ) OFFSET 0
    ) AS term
  ),
  range AS MATERIALIZED (SELECT value, id AS term_id FROM unnest($19::text[]) AS value CROSS JOIN wanted_terms),
  -- A few numbers of each range yield a bound up to which there are enough, so few ranges have to be read up to the limit.
  first AS MATERIALIZED (
    SELECT range.*, row.phone_number FROM range CROSS JOIN LATERAL (
      SELECT phone_number FROM postings
      WHERE reporting_group = ANY (ARRAY[range.value]) AND term_id = range.term_id AND phone_number > $20::text
      ORDER BY reporting_group, phone_number LIMIT (SELECT CASE count(*) WHEN 1 THEN 1 ELSE 2 * ($21::int + 1) / count(*) + 1 END FROM range)
    ) AS row
  ),
  bound AS MATERIALIZED (
    SELECT coalesce((SELECT DISTINCT phone_number FROM first ORDER BY phone_number OFFSET ($22::int + 1) - 1 LIMIT 1), '~')
      AS last
  ),
  next AS MATERIALIZED (
    SELECT DISTINCT row.phone_number
    FROM (SELECT DISTINCT value, term_id FROM first WHERE phone_number <= (SELECT last FROM bound)) AS range
    CROSS JOIN LATERAL (
      SELECT phone_number FROM postings
      WHERE reporting_group = ANY (ARRAY[range.value]) AND term_id = range.term_id AND phone_number > $23::text AND phone_number <= (SELECT last FROM bound)
      ORDER BY reporting_group, phone_number LIMIT ($24::int + 1)
    ) AS row
    ORDER BY phone_number LIMIT ($25::int + 1)
  ),
  found AS MATERIALIZED (SELECT phone_number FROM next)
  SELECT
    coalesce(string_agg(item, ','), '') AS items, count(*)::int AS count,
    max(phone_number) AS last, (SELECT count(*) FROM found) > $26::int AS has_next, '~' AS until
  FROM (SELECT phone_number FROM found ORDER BY phone_number LIMIT $27::int) AS shown
  CROSS JOIN LATERAL (
    SELECT '{"id":"' || items.id || '","phoneNumber":"' || items.phone_number || '","businessProfile":' || (
      SELECT item FROM business_profiles WHERE id = items.business_profile_id
    ) || items.item_tail AS item FROM items WHERE items.phone_number BETWEEN shown.phone_number AND shown.phone_number ORDER BY items.phone_number OFFSET 0
  ) AS item) AS page;

-- Index Scan of terms_by_carrier
-- Index Scan of terms_by_carrier
-- Index Only Scan of postings_by_reporting_group
-- Index Only Scan of postings_by_reporting_group
-- Index Scan of items_pkey
-- Index Scan of business_profiles_pkey
