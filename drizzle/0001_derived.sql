-- What the database derives, so that it is right whoever writes:
--   carrier_statuses -> branded_phone_numbers.status and .carrier_statuses -> listed_carrier_statuses
-- Each statement, of one row or of a million, passes its rows along once.

-- Specification 3.2, highest priority first.
CREATE FUNCTION overall_status(detailed_statuses detailed_status[]) RETURNS status
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
  WHEN detailed_statuses && '{pending.initialOptIn,pending.optIn,pending.optOut,submitted.optIn,submitted.optOut}'
    THEN 'submitted for review'::status
  WHEN detailed_statuses && '{rejected.optIn,rejected.optOut}' THEN 'rejected'::status
  WHEN detailed_statuses && '{approved.optIn}' THEN 'approved'::status
  ELSE 'unregistered'::status
END;
--> statement-breakpoint

-- RFC 3339 in UTC with milliseconds, as the contract's Time.
CREATE FUNCTION rfc3339(moment timestamptz) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
--> statement-breakpoint

-- An entry as an answer shows it (the contract's CarrierStatus).
CREATE FUNCTION carrier_status_json(entry carrier_statuses) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN format(
  '{"carrier":%s,"feature":"%s","detailedStatus":"%s","createdAt":"%s"}',
  to_json(entry.carrier), entry.feature, entry.detailed_status, rfc3339(entry.created_at)
);
--> statement-breakpoint

-- The derived columns of a number. They are computed anew at every write of the row, so no writer can set them wrong.
CREATE FUNCTION derive_branded_phone_number() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  SELECT
    overall_status(array_agg(entry.detailed_status)),
    coalesce('[' || string_agg(carrier_status_json(entry), ',' ORDER BY entry.carrier, entry.feature::text COLLATE "C") || ']', '[]')::json
  INTO NEW.status, NEW.carrier_statuses
  FROM carrier_statuses entry
  WHERE entry.phone_number = NEW.phone_number;
  RETURN NEW;
END $$;
--> statement-breakpoint
CREATE TRIGGER derive BEFORE INSERT OR UPDATE ON branded_phone_numbers
FOR EACH ROW EXECUTE FUNCTION derive_branded_phone_number();
--> statement-breakpoint

-- Entries have changed: their numbers are derived anew. The update also locks the numbers, so two writers of one
-- number's entries wait for each other, and the later one sees what the earlier one wrote.
CREATE FUNCTION derive_changed_numbers() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    UPDATE branded_phone_numbers SET status = DEFAULT;
  ELSIF TG_OP = 'UPDATE' THEN
    UPDATE branded_phone_numbers SET status = DEFAULT
    WHERE phone_number IN (SELECT phone_number FROM changed UNION SELECT phone_number FROM before);
  ELSE
    UPDATE branded_phone_numbers SET status = DEFAULT
    WHERE phone_number IN (SELECT phone_number FROM changed);
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER derive_on_insert AFTER INSERT ON carrier_statuses
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION derive_changed_numbers();
--> statement-breakpoint
CREATE TRIGGER derive_on_update AFTER UPDATE ON carrier_statuses
REFERENCING OLD TABLE AS before NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION derive_changed_numbers();
--> statement-breakpoint
CREATE TRIGGER derive_on_delete AFTER DELETE ON carrier_statuses
REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION derive_changed_numbers();
--> statement-breakpoint
CREATE TRIGGER derive_on_truncate AFTER TRUNCATE ON carrier_statuses
FOR EACH STATEMENT EXECUTE FUNCTION derive_changed_numbers();
--> statement-breakpoint

-- Numbers have changed: what is listed of them follows, touching only the rows that differ.
CREATE FUNCTION list_changed_numbers() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    TRUNCATE listed_carrier_statuses;
    RETURN NULL;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO combinations (carrier, feature, detailed_status, status)
    SELECT entry.carrier, entry.feature, entry.detailed_status, changed.status
    FROM changed JOIN carrier_statuses entry USING (phone_number)
    EXCEPT SELECT carrier, feature, detailed_status, status FROM combinations
    ON CONFLICT DO NOTHING;
  END IF;
  IF TG_OP <> 'INSERT' THEN
    DELETE FROM listed_carrier_statuses listed
    USING before
    WHERE listed.phone_number = before.phone_number AND NOT EXISTS (
      SELECT FROM combinations combination
      JOIN carrier_statuses entry USING (carrier, feature, detailed_status)
      JOIN branded_phone_numbers number USING (phone_number, status)
      WHERE combination.id = listed.combination_id AND phone_number = listed.phone_number
        AND (number.business_profile_id, number.reporting_group, number.internal_name)
        IS NOT DISTINCT FROM (listed.business_profile_id, listed.reporting_group, listed.internal_name)
    );
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO listed_carrier_statuses
      (phone_number, combination_id, business_profile_id, reporting_group, internal_name)
    SELECT phone_number, combination.id, entry.business_profile_id, entry.reporting_group, entry.internal_name
    FROM (
      SELECT
        phone_number, carrier, feature, detailed_status, status, business_profile_id, reporting_group, internal_name
      FROM changed JOIN carrier_statuses USING (phone_number)
      OFFSET 0 -- else the planner, not knowing what has changed, may pair every number with every combination first
    ) AS entry
    JOIN combinations combination USING (carrier, feature, detailed_status, status)
    -- Of a new number nothing is listed yet; of another, what is left is right.
    WHERE TG_OP = 'INSERT' OR NOT EXISTS (
      SELECT FROM listed_carrier_statuses listed
      WHERE (listed.phone_number, listed.combination_id) = (entry.phone_number, combination.id)
    );
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER list_on_insert AFTER INSERT ON branded_phone_numbers
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION list_changed_numbers();
--> statement-breakpoint
CREATE TRIGGER list_on_update AFTER UPDATE ON branded_phone_numbers
REFERENCING OLD TABLE AS before NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION list_changed_numbers();
--> statement-breakpoint
CREATE TRIGGER list_on_delete AFTER DELETE ON branded_phone_numbers
REFERENCING OLD TABLE AS before FOR EACH STATEMENT EXECUTE FUNCTION list_changed_numbers();
--> statement-breakpoint
CREATE TRIGGER list_on_truncate AFTER TRUNCATE ON branded_phone_numbers
FOR EACH STATEMENT EXECUTE FUNCTION list_changed_numbers();
--> statement-breakpoint

-- Who writes numbers with their entries may write the entries first, so that each number is derived once.
ALTER TABLE carrier_statuses ALTER CONSTRAINT carrier_status_has_number DEFERRABLE;
--> statement-breakpoint

-- Nobody but the triggers above writes what is listed.
CREATE FUNCTION refuse_write_of_derived_rows() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'listed_carrier_statuses is derived; write carrier_statuses or branded_phone_numbers instead';
END $$;
--> statement-breakpoint
CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON listed_carrier_statuses
FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION refuse_write_of_derived_rows();
--> statement-breakpoint

-- The rate limit's store: lost with a crash, which is well for what is a second old; and with room on each page for the
-- next version of a row, since every counted request writes one.
ALTER TABLE rate_limits SET UNLOGGED;
--> statement-breakpoint
ALTER TABLE rate_limits SET (fillfactor = 50);
--> statement-breakpoint

-- Counts a request of a client unless it already has `points` in the last second. The lock on the client's row makes
-- instances take turns, and the clock is read under the lock, so the log is in order and one clock serves all.
-- `wait` is until the oldest counted request leaves the window, in milliseconds.
CREATE FUNCTION count_request(wanted text, points integer, OUT allowed boolean, OUT counted integer, OUT wait float8)
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO rate_limits AS log (client, requests, allowed)
  VALUES (wanted, ARRAY[clock_timestamp()], true)
  ON CONFLICT (client) DO UPDATE SET (requests, allowed) = (
    SELECT CASE WHEN cardinality(recent) < points THEN recent || moment ELSE recent END, cardinality(recent) < points
    FROM
      (SELECT clock_timestamp() AS moment OFFSET 0) AS clock,
      LATERAL (SELECT ARRAY(
        SELECT request FROM unnest(log.requests) AS request WHERE request > moment - interval '1 second' ORDER BY request
      ) AS recent) AS log_window
  )
  RETURNING log.allowed, cardinality(log.requests),
    extract(epoch FROM log.requests[1] + interval '1 second' - clock_timestamp()) * 1000
  INTO allowed, counted, wait;
END $$;
