select items, count, last, has_next, until from (
  SELECT
    coalesce(string_agg(item, ','), '') AS items, count(*)::int AS count,
    max(phone_number) AS last, (
      SELECT phone_number FROM items
      WHERE phone_number > max(shown.phone_number) ORDER BY phone_number LIMIT 1
    ) IS NOT NULL AS has_next, '~' AS until
  FROM (
    SELECT phone_number, '{"id":"' || items.id || '","phoneNumber":"' || items.phone_number || '","businessProfile":' || (
      SELECT item FROM business_profiles WHERE id = items.business_profile_id
    ) || items.item_tail AS item FROM items
    WHERE phone_number > $1::text AND EXISTS (SELECT FROM terms) ORDER BY phone_number LIMIT $2::int
  ) AS shown) AS page;

-- Index Only Scan of terms_by_carrier
-- Index Scan of items_pkey
-- Index Scan of business_profiles_pkey
-- Index Only Scan of items_pkey
