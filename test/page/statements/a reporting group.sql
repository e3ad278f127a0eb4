select items, count, last, has_next, until from (
  WITH range AS MATERIALIZED (SELECT value FROM unnest($1::text[]) AS value WHERE EXISTS (SELECT FROM terms)),
  -- A few numbers of each range yield a bound up to which there are enough, so few ranges have to be read up to the limit.
  first AS MATERIALIZED (
    SELECT range.*, row.phone_number FROM range CROSS JOIN LATERAL (
      SELECT phone_number FROM items
      WHERE reporting_group = ANY (ARRAY[range.value]) AND phone_number > $2::text
      ORDER BY reporting_group, phone_number LIMIT (SELECT CASE count(*) WHEN 1 THEN 1 ELSE 2 * ($3::int + 1) / count(*) + 1 END FROM range)
    ) AS row
  ),
  bound AS MATERIALIZED (
    SELECT coalesce((SELECT DISTINCT phone_number FROM first ORDER BY phone_number OFFSET ($4::int + 1) - 1 LIMIT 1), '~')
      AS last
  ),
  next AS MATERIALIZED (
    SELECT DISTINCT row.phone_number
    FROM (SELECT DISTINCT value FROM first WHERE phone_number <= (SELECT last FROM bound)) AS range
    CROSS JOIN LATERAL (
      SELECT phone_number FROM items
      WHERE reporting_group = ANY (ARRAY[range.value]) AND phone_number > $5::text AND phone_number <= (SELECT last FROM bound)
      ORDER BY reporting_group, phone_number LIMIT ($6::int + 1)
    ) AS row
    ORDER BY phone_number LIMIT ($7::int + 1)
  ),
  found AS MATERIALIZED (SELECT phone_number FROM next)
  SELECT
    coalesce(string_agg(item, ','), '') AS items, count(*)::int AS count,
    max(phone_number) AS last, (SELECT count(*) FROM found) > $8::int AS has_next, '~' AS until
  FROM (SELECT phone_number FROM found ORDER BY phone_number LIMIT $9::int) AS shown
  CROSS JOIN LATERAL (
    SELECT '{"id":"' || items.id || '","phoneNumber":"' || items.phone_number || '","businessProfile":' || (
      SELECT item FROM business_profiles WHERE id = items.business_profile_id
    ) || items.item_tail AS item FROM items WHERE items.phone_number BETWEEN shown.phone_number AND shown.phone_number ORDER BY items.phone_number OFFSET 0
  ) AS item) AS page;

-- Index Only Scan of terms_by_carrier
-- Index Only Scan of items_by_reporting_group
-- Index Only Scan of items_by_reporting_group
-- Index Scan of items_pkey
-- Index Scan of business_profiles_pkey
