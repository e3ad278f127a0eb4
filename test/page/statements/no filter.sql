select items, count, last, has_next, until from (
  SELECT
    coalesce(string_agg(item, ',' ORDER BY phone_number), '') AS items, count(*)::int AS count,
    max(phone_number) AS last, (
      SELECT phone_number FROM branded_phone_numbers
      WHERE phone_number > max(shown.phone_number) ORDER BY phone_number LIMIT 1
    ) IS NOT NULL AS has_next, '~' AS until
  FROM (
    SELECT number.phone_number, '{"id":"' || number.id || '","phoneNumber":"' || number.phone_number || '","businessProfile":'
      || (SELECT profile.item FROM business_profiles AS profile WHERE profile.id = number.business_profile_id)
      || number.item_tail AS item FROM branded_phone_numbers AS number
    WHERE phone_number > $1::text AND EXISTS (SELECT FROM terms) ORDER BY phone_number LIMIT $2::int
  ) AS shown) AS page;

-- Index Only Scan of terms_values
-- Index Scan of branded_phone_numbers_pkey
-- Index Scan of business_profiles_pkey
-- Index Only Scan of branded_phone_numbers_pkey
