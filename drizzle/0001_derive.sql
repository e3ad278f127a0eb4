-- How an item comes to be:
--
--   business_profiles, branded_phone_numbers, carrier_statuses        the sources, which any program may write
--        | triggers, the import, `check`
--        v
--   derive(phone_numbers)                                             the only writer of the read model
--        v
--   items, terms, postings                                            the read model, which pages are read from
--
-- A business profile's JSON stands with the profile and is put in when a page is read (src/page/statements.ts), so that a
-- change of a profile changes none of its numbers.
--
-- The functions run with the rights of their owner, and a search_path without a schema in which a writer could put tables
-- of its own. A writer needs rights on the sources alone; nobody but the owner has any on the read model.

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

-- A term's id: 64 bits of a hash of its values. Among a hundred thousand terms two are the same once in four billion
-- databases. Names hold no control characters, so the separator is none of theirs.
CREATE FUNCTION term_id(carrier text, feature feature, detailed_status detailed_status, status status) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
RETURN hashtextextended(
  carrier || coalesce(E'\x01' || feature || E'\x01' || detailed_status, '') || E'\x01' || status, 0
);
--> statement-breakpoint

-- RFC 3339 in UTC with milliseconds, as the contract's Time; rounded to milliseconds, like the columns.
CREATE FUNCTION rfc3339(moment timestamptz) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN to_char(moment::timestamptz(3) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
--> statement-breakpoint

-- A text or null as JSON.
CREATE FUNCTION json_of(value text) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce(to_json(value)::text, 'null');
--> statement-breakpoint

-- Brings the read model in line with the sources for some numbers, whatever it held of them before: writes what differs and
-- nothing else. Numbers that are gone from the sources go from it. Takes them by the thousand, so that memory is bounded;
-- `phone_numbers` should be in order, so that no two writers wait for each other.
--
-- updated_at of an item moves forward whenever the item changes, and never back. A writer that gives a later time keeps it.
--
-- Returns the phone numbers of which it wrote anything, once for each row.
--
-- Serves one number and a thousand by the same plan: indexes, and hashes of what they found. A plan of its own for each
-- call takes four times as long for one number.
CREATE FUNCTION derive(phone_numbers text[]) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_nestloop = off SET jit = off AS $$
DECLARE
  batch_size CONSTANT integer := 1000;
  batch text[];
BEGIN
  FOR start IN 1 .. cardinality(phone_numbers) BY batch_size LOOP
    batch := phone_numbers[start : start + batch_size - 1];
    -- Of two writers of one number, the later one sees what the earlier one wrote.
    PERFORM FROM branded_phone_numbers WHERE phone_number = ANY (batch) ORDER BY phone_number FOR NO KEY UPDATE;
    RETURN QUERY
    WITH entry AS MATERIALIZED (
      SELECT number.phone_number, carrier, feature, detailed_status, entry.created_at,
        overall_status(array_agg(detailed_status) OVER (PARTITION BY number.phone_number)) AS status
      FROM branded_phone_numbers AS number
      LEFT JOIN (SELECT * FROM carrier_statuses WHERE phone_number = ANY (batch)) AS entry USING (phone_number)
      WHERE number.phone_number = ANY (batch)
    ),
    -- What each number is listed under: each entry; and the same without its carrier, so that a filter that names no
    -- carrier needs only a few terms, however many carriers there are. Without entries only its status is left of that.
    listed AS MATERIALIZED (
      SELECT term_id(carrier, feature, detailed_status, status), *
      FROM (
        SELECT phone_number, carrier, feature, detailed_status, status,
          '{"carrier":' || to_json(carrier) || ',"feature":"' || feature || '","detailedStatus":"' || detailed_status
            || '","createdAt":"' || rfc3339(created_at) || '"}' AS json
        FROM entry WHERE carrier IS NOT NULL
        UNION ALL
        SELECT DISTINCT phone_number, '', feature, detailed_status, status, NULL FROM entry
      ) AS term
    ), list AS MATERIALIZED (
      SELECT phone_number, status, array_agg(term_id ORDER BY term_id) AS term_ids,
        coalesce(string_agg(json, ',' ORDER BY carrier, feature::text COLLATE "C"), '') AS carrier_statuses
      FROM listed GROUP BY phone_number, status
    ), old AS MATERIALIZED (
      SELECT phone_number, id, business_profile_id, internal_name, reporting_group, status, term_ids, item_tail, updated_at
      FROM items WHERE phone_number = ANY (batch)
    ), fresh AS MATERIALIZED (
      SELECT phone_number, number.id, number.business_profile_id, number.internal_name, number.reporting_group,
        list.status, list.term_ids, tail || rfc3339(moment) || '"}' AS item_tail, moment AS updated_at
      FROM branded_phone_numbers AS number JOIN list USING (phone_number) LEFT JOIN old USING (phone_number)
      CROSS JOIN LATERAL (SELECT
        ',"internalName":' || json_of(number.internal_name) || ',"brandingNameShort":' || json_of(branding_name_short)
          || ',"brandingNameLong":' || json_of(branding_name_long)
          || ',"reportingGroup":' || json_of(number.reporting_group) || ',"status":"' || list.status
          || '","carrierStatuses":[' || carrier_statuses || '],"createdAt":"' || rfc3339(created_at)
          || '","updatedAt":"' AS tail
        OFFSET 0
      ) AS made
      CROSS JOIN LATERAL (SELECT CASE
        WHEN old.updated_at IS NULL OR number.updated_at > old.updated_at THEN number.updated_at
        WHEN (number.id, number.business_profile_id, tail || rfc3339(old.updated_at) || '"}')
          = (old.id, old.business_profile_id, old.item_tail) THEN old.updated_at
        ELSE least(greatest(now(), old.updated_at + interval '1 millisecond'), '9999-12-31T23:59:59.999Z')
      END::timestamptz(3) AS moment OFFSET 0) AS dated
      WHERE number.phone_number = ANY (batch)
    ), written AS (
      INSERT INTO items AS item (
        phone_number, id, business_profile_id, internal_name, reporting_group, status, term_ids, item_tail, updated_at
      )
      TABLE fresh EXCEPT TABLE old ORDER BY phone_number
      ON CONFLICT (phone_number) DO UPDATE SET
        (id, business_profile_id, internal_name, reporting_group, status, term_ids, item_tail, updated_at) = (
          excluded.id, excluded.business_profile_id, excluded.internal_name, excluded.reporting_group, excluded.status,
          excluded.term_ids, excluded.item_tail, excluded.updated_at
        )
      RETURNING phone_number
    ), gone AS (
      DELETE FROM items
      WHERE phone_number = ANY (ARRAY(SELECT phone_number FROM old EXCEPT SELECT phone_number FROM fresh))
      RETURNING phone_number
    ), named AS (
      INSERT INTO terms AS term (id, carrier, feature, detailed_status, status)
      SELECT * FROM (SELECT DISTINCT term_id, carrier, feature, detailed_status, status FROM listed) AS term
      WHERE (SELECT (id, carrier, feature, detailed_status, status) FROM terms WHERE id = term_id)
        IS DISTINCT FROM (term_id, carrier, feature, detailed_status, status)
      ORDER BY term_id
      ON CONFLICT (id) DO UPDATE SET (carrier, feature, detailed_status, status)
        = (excluded.carrier, excluded.feature, excluded.detailed_status, excluded.status)
      RETURNING id
    ),
    -- Postings that are missing, or differ in an attribute. Those that differ are replaced, by an INSERT without ON CONFLICT,
    -- which would look for each posting again. (OFFSET 0: or each would be looked for twice here, too.)
    posted AS MATERIALIZED (
      SELECT * FROM (
        SELECT term_id, phone_number, business_profile_id, reporting_group, internal_name, (
          SELECT ctid FROM postings WHERE (postings.term_id, postings.phone_number) = (listed.term_id, listed.phone_number)
        ) AS stale
        FROM listed JOIN fresh USING (phone_number)
        OFFSET 0
      ) AS posting
      WHERE stale IS NULL OR (business_profile_id, reporting_group, internal_name) IS DISTINCT FROM (
        SELECT (business_profile_id, reporting_group, internal_name) FROM postings WHERE ctid = stale
      )
    ), unlisted AS (
      DELETE FROM postings WHERE ctid = ANY (ARRAY(
        SELECT stale FROM posted WHERE stale IS NOT NULL
        UNION ALL
        SELECT (SELECT ctid FROM postings WHERE (term_id, phone_number) = (former.term_id, former.phone_number))
        FROM (
          SELECT unnest(term_ids) AS term_id, phone_number FROM old EXCEPT SELECT term_id, phone_number FROM listed
        ) AS former
      ))
      RETURNING phone_number
    ), inserted AS (
      INSERT INTO postings (term_id, phone_number, business_profile_id, reporting_group, internal_name)
      SELECT term_id, phone_number, business_profile_id, reporting_group, internal_name FROM posted
      -- Once the rows that they replace are gone, and a concurrent change of the item has been found.
      WHERE (SELECT count(*) FROM written) + (SELECT count(*) FROM unlisted) >= 0
    )
    TABLE written UNION ALL TABLE gone UNION ALL TABLE unlisted UNION ALL SELECT phone_number FROM posted
    UNION ALL SELECT phone_number FROM listed WHERE term_id = ANY (ARRAY(TABLE named));
  END LOOP;
END $$;
--> statement-breakpoint

-- A phone number is a number's identity.
CREATE FUNCTION refuse_rename() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE 'phone_number never changes: delete the row of % in % and insert one of %',
    OLD.phone_number, TG_TABLE_NAME, NEW.phone_number USING ERRCODE = 'restrict_violation';
END $$;
--> statement-breakpoint
CREATE TRIGGER refuse_rename BEFORE UPDATE ON branded_phone_numbers
FOR EACH ROW WHEN (OLD.phone_number IS DISTINCT FROM NEW.phone_number) EXECUTE FUNCTION refuse_rename();
CREATE TRIGGER refuse_rename BEFORE UPDATE ON carrier_statuses
FOR EACH ROW WHEN (OLD.phone_number IS DISTINCT FROM NEW.phone_number) EXECUTE FUNCTION refuse_rename();
--> statement-breakpoint

-- branded_phone_numbers is the gate of all sources: who locks it keeps every writer out, and needs no second lock.
CREATE FUNCTION pass_gate() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  LOCK TABLE branded_phone_numbers IN ROW SHARE MODE;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER pass_gate BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON carrier_statuses
FOR EACH STATEMENT EXECUTE FUNCTION pass_gate();
CREATE TRIGGER pass_gate BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON business_profiles
FOR EACH STATEMENT EXECUTE FUNCTION pass_gate();
--> statement-breakpoint

-- Numbers that a transaction has put off deriving, by `SET LOCAL branded_phone_numbers.defer = 'on'`: an import changes each
-- in several statements. They are derived at `SET CONSTRAINTS derive_deferred IMMEDIATE`, or else at the commit, so that
-- nobody can leave the read model wrong.
CREATE UNLOGGED TABLE deferred (phone_numbers text[] COLLATE "C");
CREATE FUNCTION derive_deferred() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
  phone_numbers text[];
BEGIN
  WITH taken AS (DELETE FROM deferred RETURNING deferred.phone_numbers)
  SELECT ARRAY(SELECT DISTINCT unnest(taken.phone_numbers) FROM taken ORDER BY 1) INTO phone_numbers;
  PERFORM derive(phone_numbers) LIMIT 1;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER derive_deferred AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION derive_deferred();
--> statement-breakpoint

-- The sources have changed, by one row or a million: derives their numbers. Of the rows that derive returns, all at its end,
-- one is enough: PERFORM would keep them in memory.
CREATE FUNCTION derive_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  IF TG_OP <> 'TRUNCATE' AND current_setting('branded_phone_numbers.defer', true) = 'on' THEN
    INSERT INTO deferred SELECT array_agg(DISTINCT phone_number) FROM changed HAVING count(*) > 0;
  ELSIF TG_OP <> 'TRUNCATE' THEN
    PERFORM derive(ARRAY(SELECT DISTINCT phone_number FROM changed ORDER BY 1)) LIMIT 1;
  ELSIF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
    -- TRUNCATE sees what others have committed, but an old snapshot does not.
    RAISE 'TRUNCATE needs the isolation level READ COMMITTED: begin the transaction with it'
      USING ERRCODE = 'feature_not_supported';
  ELSIF EXISTS (SELECT FROM branded_phone_numbers) THEN
    PERFORM derive(ARRAY(SELECT phone_number FROM branded_phone_numbers ORDER BY 1)) LIMIT 1;
  ELSE
    TRUNCATE items, terms, postings;
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER derive_inserted AFTER INSERT ON branded_phone_numbers
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION derive_changed();
CREATE TRIGGER derive_updated AFTER UPDATE ON branded_phone_numbers
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION derive_changed();
CREATE TRIGGER derive_deleted AFTER DELETE ON branded_phone_numbers
REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION derive_changed();
CREATE TRIGGER derive_truncated AFTER TRUNCATE ON branded_phone_numbers
FOR EACH STATEMENT EXECUTE FUNCTION derive_changed();
CREATE TRIGGER derive_inserted AFTER INSERT ON carrier_statuses
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION derive_changed();
CREATE TRIGGER derive_updated AFTER UPDATE ON carrier_statuses
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION derive_changed();
CREATE TRIGGER derive_deleted AFTER DELETE ON carrier_statuses
REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION derive_changed();
CREATE TRIGGER derive_truncated AFTER TRUNCATE ON carrier_statuses
FOR EACH STATEMENT EXECUTE FUNCTION derive_changed();
--> statement-breakpoint

-- Only the triggers and the owner derive.
REVOKE EXECUTE ON FUNCTION derive FROM PUBLIC;
