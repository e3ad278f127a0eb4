-- What a database of release 1.0.0 holds, as its writers wrote it.
INSERT INTO business_profiles (id, business_name, status) VALUES
  ('6513270e-269e-4d37-b2a7-4de452e6b438', 'Circle Bank', 'approved'),
  ('5d9dc9f8-1818-4811-892f-902bd23f0824', 'Fjord "Travel" \ 🏦', 'submitted for review');
INSERT INTO branded_phone_numbers (
  phone_number, id, business_profile_id, internal_name, branding_name_short, branding_name_long, reporting_group,
  created_at, updated_at
) VALUES
  ('+14155550123', '0192f1c0-5b7e-7c3a-9d52-3f1f8a6e0b11', '6513270e-269e-4d37-b2a7-4de452e6b438', 'Main Line',
   'Circle Bank', 'Circle Bank Financial', 'Control', '2026-02-03T16:49:02.748Z', '2026-02-04T16:49:02.748Z'),
  ('+14155550124', '0192f1c0-5b7e-7c3a-9d52-3f1f8a6e0b12', '5d9dc9f8-1818-4811-892f-902bd23f0824', NULL, NULL, NULL,
   NULL, '0001-01-01T00:00:00Z', '2026-02-03T16:49:02.748Z');
INSERT INTO carrier_statuses (phone_number, carrier, feature, detailed_status, created_at) VALUES
  ('+14155550123', 'AT&T', 'brandedCallerId', 'approved.optIn', '2026-02-03T16:49:03.043Z'),
  ('+14155550123', 'Verizon', 'spamRemediation', 'rejected.optOut', '9999-12-31T23:59:59.999Z');
INSERT INTO api_keys (hash, name) VALUES (repeat('0', 64), 'A partner');
