-- What the database derives, so that it is right whoever writes:
--   carrier_statuses -> the derived columns of branded_phone_numbers -> listings
--   business_profiles.item
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

-- RFC 3339 in UTC with milliseconds, as the contract's Time; rounded as the columns round.
CREATE FUNCTION rfc3339(moment timestamptz) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN to_char(moment::timestamptz(3) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
--> statement-breakpoint

-- A text or null as JSON.
CREATE FUNCTION json_of(value text) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce(to_json(value)::text, 'null');
--> statement-breakpoint

-- A number's entries as an answer shows them (the contract's CarrierStatus). These two return rows, not values, because
-- so the planner unfolds them in a query over many numbers.
CREATE FUNCTION json_of_entries(
  carriers text[], features feature[], detailed_statuses detailed_status[], created_ats timestamptz[]
) RETURNS TABLE (entries text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
  SELECT coalesce(string_agg(
    '{"carrier":' || to_json(carrier) || ',"feature":"' || feature || '","detailedStatus":"' || detailed_status
      || '","createdAt":"' || rfc3339(created_at) || '"}',
    ',' ORDER BY carrier COLLATE "C", feature::text COLLATE "C"
  ), '')
  FROM (
    SELECT unnest(carriers) AS carrier, unnest(features) AS feature, unnest(detailed_statuses) AS detailed_status,
      unnest(created_ats) AS created_at
  ) AS entry;
END;
--> statement-breakpoint

-- The facets of a number with such entries, as far as there are such facets yet.
CREATE FUNCTION facets_of_entries(carriers text[], features feature[], detailed_statuses detailed_status[])
RETURNS TABLE (status status, facet_ids integer[])
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
  SELECT derived.status, ARRAY(
    SELECT id FROM facets WHERE facets.carrier IS NULL AND facets.status = derived.status
    UNION ALL
    SELECT id
    FROM unnest(carriers, features, detailed_statuses) AS entry (carrier, feature, detailed_status)
    JOIN facets USING (carrier, feature, detailed_status)
    WHERE facets.status = derived.status
  )
  FROM (SELECT overall_status(detailed_statuses) AS status OFFSET 0) AS derived;
END;
--> statement-breakpoint

-- What follows the business profile in an item (the contract's BrandedPhoneNumber).
CREATE FUNCTION item_tail_json(
  internal_name text, branding_name_short text, branding_name_long text, reporting_group text, status status,
  entries text, created_at timestamptz, updated_at timestamptz
) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN ',"internalName":' || json_of(internal_name) || ',"brandingNameShort":' || json_of(branding_name_short)
  || ',"brandingNameLong":' || json_of(branding_name_long) || ',"reportingGroup":' || json_of(reporting_group)
  || ',"status":"' || status || '","carrierStatuses":[' || entries
  || '],"createdAt":"' || rfc3339(created_at) || '","updatedAt":"' || rfc3339(updated_at) || '"}';
--> statement-breakpoint

CREATE FUNCTION derive_business_profile() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  NEW.item := '{"id":"' || NEW.id || '","businessName":' || to_json(NEW.business_name)
    || ',"status":' || to_json(NEW.status) || '}';
  RETURN NEW;
END $$;
--> statement-breakpoint
CREATE TRIGGER derive BEFORE INSERT OR UPDATE ON business_profiles
FOR EACH ROW EXECUTE FUNCTION derive_business_profile();
--> statement-breakpoint

-- The derived columns of a number. They are computed anew at every write of the row, so no writer can set them wrong.
CREATE FUNCTION derive_branded_phone_number() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  entries record;
BEGIN
  SELECT array_agg(carrier) AS carriers, array_agg(feature) AS features,
    array_agg(detailed_status) AS detailed_statuses, array_agg(created_at) AS created_ats, count(*) AS count
  INTO entries
  FROM carrier_statuses WHERE phone_number = NEW.phone_number;
  LOOP
    SELECT status, facet_ids INTO NEW.status, NEW.facet_ids
    FROM facets_of_entries(entries.carriers, entries.features, entries.detailed_statuses);
    EXIT WHEN cardinality(NEW.facet_ids) > entries.count;
    INSERT INTO facets (carrier, feature, detailed_status, status)
    SELECT NULL, NULL, NULL, NEW.status
    UNION ALL
    SELECT *, NEW.status FROM unnest(entries.carriers, entries.features, entries.detailed_statuses)
    ORDER BY 1, 2, 3 -- the same for all, lest two wait for each other
    ON CONFLICT DO NOTHING;
  END LOOP;
  SELECT item_tail_json(
    NEW.internal_name, NEW.branding_name_short, NEW.branding_name_long, NEW.reporting_group, NEW.status, json.entries,
    NEW.created_at, NEW.updated_at
  )
  INTO NEW.item_tail
  FROM json_of_entries(entries.carriers, entries.features, entries.detailed_statuses, entries.created_ats) AS json;
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

-- Numbers have changed: their listings follow, touching only the rows that differ.
CREATE FUNCTION list_changed_numbers() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    TRUNCATE listings;
  ELSIF TG_OP = 'INSERT' THEN
    INSERT INTO listings (facet_id, phone_number, business_profile_id, reporting_group, internal_name)
    SELECT unnest(facet_ids), phone_number, business_profile_id, reporting_group, internal_name FROM changed;
  ELSIF TG_OP = 'DELETE' THEN
    DELETE FROM listings
    USING (SELECT unnest(facet_ids) AS facet_id, phone_number FROM before OFFSET 0) AS gone
    WHERE (listings.facet_id, listings.phone_number) = (gone.facet_id, gone.phone_number);
  ELSE
    DELETE FROM listings
    USING (
      SELECT unnest(facet_ids) AS facet_id, phone_number, business_profile_id, reporting_group, internal_name FROM before
      EXCEPT
      SELECT unnest(facet_ids), phone_number, business_profile_id, reporting_group, internal_name FROM changed
    ) AS gone
    WHERE (listings.facet_id, listings.phone_number) = (gone.facet_id, gone.phone_number);
    INSERT INTO listings (facet_id, phone_number, business_profile_id, reporting_group, internal_name)
    SELECT unnest(facet_ids), phone_number, business_profile_id, reporting_group, internal_name FROM changed
    EXCEPT
    SELECT unnest(facet_ids), phone_number, business_profile_id, reporting_group, internal_name FROM before;
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
  RAISE EXCEPTION '% is derived; write carrier_statuses or branded_phone_numbers instead', TG_TABLE_NAME;
END $$;
--> statement-breakpoint
CREATE TRIGGER refuse BEFORE UPDATE OR DELETE OR TRUNCATE ON facets
FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION refuse_write_of_derived_rows();
--> statement-breakpoint
CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON listings
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
