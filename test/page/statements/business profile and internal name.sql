select last from (
  WITH range AS MATERIALIZED (SELECT value FROM unnest($1::uuid[]) AS value WHERE EXISTS (SELECT FROM terms)),
  -- A few numbers of each range yield a bound up to which there are enough, so few ranges have to be read up to the limit.
  first AS MATERIALIZED (
    SELECT range.*, row.phone_number FROM range CROSS JOIN LATERAL (
      SELECT phone_number FROM items
      WHERE business_profile_id = ANY (ARRAY[range.value]) AND phone_number > $2::text
      ORDER BY business_profile_id, phone_number LIMIT (SELECT CASE count(*) WHEN 1 THEN 1 ELSE 2 * $3::int / count(*) + 1 END FROM range)
    ) AS row
  ),
  bound AS MATERIALIZED (
    SELECT coalesce((SELECT phone_number FROM first ORDER BY phone_number OFFSET $4::int - 1 LIMIT 1), '~')
      AS last
  ),
  next AS MATERIALIZED (
    SELECT DISTINCT row.phone_number
    FROM (SELECT DISTINCT value FROM first WHERE phone_number <= (SELECT last FROM bound)) AS range
    CROSS JOIN LATERAL (
      SELECT phone_number FROM items
      WHERE business_profile_id = ANY (ARRAY[range.value]) AND phone_number > $5::text AND phone_number <= (SELECT last FROM bound)
      ORDER BY business_profile_id, phone_number LIMIT $6::int
    ) AS row
    ORDER BY phone_number LIMIT $7::int
  )
  SELECT CASE count(*) WHEN $8::int THEN max(phone_number) ELSE (SELECT last FROM bound) END AS last FROM next) AS reach;

-- Index Only Scan of terms_by_carrier
-- Index Only Scan of items_by_business_profile
-- Index Only Scan of items_by_business_profile


select last from (
  WITH range AS MATERIALIZED (SELECT value FROM unnest($1::text[]) AS value WHERE EXISTS (SELECT FROM terms)),
  -- A few numbers of each range yield a bound up to which there are enough, so few ranges have to be read up to the limit.
  first AS MATERIALIZED (
    SELECT range.*, row.phone_number FROM range CROSS JOIN LATERAL (
      SELECT phone_number FROM items
      WHERE internal_name = ANY (ARRAY[range.value]) AND phone_number > $2::text
      ORDER BY internal_name, phone_number LIMIT (SELECT CASE count(*) WHEN 1 THEN 1 ELSE 2 * $3::int / count(*) + 1 END FROM range)
    ) AS row
  ),
  bound AS MATERIALIZED (
    SELECT coalesce((SELECT phone_number FROM first ORDER BY phone_number OFFSET $4::int - 1 LIMIT 1), '~')
      AS last
  ),
  next AS MATERIALIZED (
    SELECT DISTINCT row.phone_number
    FROM (SELECT DISTINCT value FROM first WHERE phone_number <= (SELECT last FROM bound)) AS range
    CROSS JOIN LATERAL (
      SELECT phone_number FROM items
      WHERE internal_name = ANY (ARRAY[range.value]) AND phone_number > $5::text AND phone_number <= (SELECT last FROM bound)
      ORDER BY internal_name, phone_number LIMIT $6::int
    ) AS row
    ORDER BY phone_number LIMIT $7::int
  )
  SELECT CASE count(*) WHEN $8::int THEN max(phone_number) ELSE (SELECT last FROM bound) END AS last FROM next) AS reach;

-- Index Only Scan of terms_by_carrier
-- Index Only Scan of items_by_internal_name
-- Index Only Scan of items_by_internal_name


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
  range AS MATERIALIZED (SELECT value FROM unnest($19::text[]) AS value WHERE EXISTS (SELECT FROM terms)),
  share AS MATERIALIZED (
    SELECT coalesce((
      SELECT phone_number FROM items
      WHERE internal_name = ANY (ARRAY[range.value]) AND phone_number > $20::text
      ORDER BY internal_name, phone_number OFFSET (SELECT ($21::int - 1) / count(*) FROM range) LIMIT 1
    ), '~') AS last FROM range
  ),
  half AS MATERIALIZED (
    SELECT coalesce(percentile_disc(0.5) WITHIN GROUP (ORDER BY last), '~') AS last FROM share
  ),
  reach AS MATERIALIZED (
    SELECT coalesce(min(row.phone_number), (SELECT last FROM half)) AS last FROM range CROSS JOIN LATERAL (
      SELECT phone_number FROM items
      WHERE internal_name = ANY (ARRAY[range.value]) AND phone_number > $22::text AND phone_number <= (SELECT last FROM half)
      ORDER BY internal_name, phone_number OFFSET $23::int - 1 LIMIT 1
    ) AS row
    WHERE (SELECT count(*) FROM range) > 1
  ),
  found AS MATERIALIZED (
    SELECT DISTINCT row.phone_number FROM range CROSS JOIN LATERAL (
      SELECT phone_number FROM items AS candidate
      WHERE internal_name = ANY (ARRAY[range.value]) AND phone_number > $24::text AND phone_number <= (SELECT last FROM reach)
        AND ($25::uuid[] IS NULL OR business_profile_id IN (SELECT unnest($26::uuid[])))
        AND ($27::text[] IS NULL OR reporting_group IN (SELECT unnest($28::text[])))
        AND (NOT $29::boolean OR (
          SELECT term_ids && ARRAY(SELECT id FROM wanted_terms) FROM items WHERE items.phone_number BETWEEN candidate.phone_number AND candidate.phone_number ORDER BY items.phone_number OFFSET 0
        ))
      ORDER BY internal_name, phone_number LIMIT ($30::int + 1)
    ) AS row
    ORDER BY phone_number LIMIT ($31::int + 1)
  )
  SELECT
    coalesce(string_agg(item, ','), '') AS items, count(*)::int AS count,
    max(phone_number) AS last, (SELECT count(*) FROM found) > $32::int AS has_next, (SELECT last FROM reach) AS until
  FROM (SELECT phone_number FROM found ORDER BY phone_number LIMIT $33::int) AS shown
  CROSS JOIN LATERAL (
    SELECT '{"id":"' || items.id || '","phoneNumber":"' || items.phone_number || '","businessProfile":' || (
      SELECT item FROM business_profiles WHERE id = items.business_profile_id
    ) || items.item_tail AS item FROM items WHERE items.phone_number BETWEEN shown.phone_number AND shown.phone_number ORDER BY items.phone_number OFFSET 0
  ) AS item) AS page;

-- Index Scan of terms_by_carrier
-- Index Scan of terms_by_carrier
-- Index Only Scan of terms_by_carrier
-- Index Only Scan of items_by_internal_name
-- Index Only Scan of items_by_internal_name
-- Index Only Scan of items_by_internal_name
-- Index Scan of items_pkey
-- Index Scan of items_pkey
-- Index Scan of business_profiles_pkey
