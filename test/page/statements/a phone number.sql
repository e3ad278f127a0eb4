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
  found AS MATERIALIZED (
    SELECT phone_number FROM items
    WHERE items.phone_number BETWEEN $19::text AND $20::text AND phone_number > $21::text
      AND ($22::uuid[] IS NULL OR business_profile_id IN (SELECT unnest($23::uuid[])))
        AND ($24::text[] IS NULL OR reporting_group IN (SELECT unnest($25::text[])))
        AND ($26::text[] IS NULL OR internal_name IN (SELECT unnest($27::text[])))
      AND (NOT $28::boolean OR term_ids && ARRAY(SELECT id FROM wanted_terms))
    ORDER BY phone_number
  )
  SELECT
    coalesce(string_agg(item, ','), '') AS items, count(*)::int AS count,
    max(phone_number) AS last, (SELECT count(*) FROM found) > $29::int AS has_next, '~' AS until
  FROM (SELECT phone_number FROM found ORDER BY phone_number LIMIT $30::int) AS shown
  CROSS JOIN LATERAL (
    SELECT '{"id":"' || items.id || '","phoneNumber":"' || items.phone_number || '","businessProfile":' || (
      SELECT item FROM business_profiles WHERE id = items.business_profile_id
    ) || items.item_tail AS item FROM items WHERE items.phone_number BETWEEN shown.phone_number AND shown.phone_number ORDER BY items.phone_number OFFSET 0
  ) AS item) AS page;

-- Index Scan of terms_by_carrier
-- Index Scan of terms_by_carrier
-- Index Scan of items_pkey
-- Index Scan of items_pkey
-- Index Scan of business_profiles_pkey
