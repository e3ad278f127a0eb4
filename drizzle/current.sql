-- All functions and triggers, as the migrations leave them: read this file, not the migrations. It is not run.
-- test/database/current.test.ts compares it with a migrated database.
--
-- How an item comes to be:
--
--   business_profiles, branded_phone_numbers, carrier_statuses        the sources, which any program may write
--        | triggers, the import, `check`
--        v
--   derive(phone_numbers)                                             the only writer of the read model
--        v
--   items, terms, postings                                            the read model, which pages are read from
--
-- A profile's JSON is added when a page is read (src/page/statements.ts): a change of it changes none of its numbers.
-- The functions run with their owner's rights, and a search_path in which no other role can create functions or operators:
-- to_json(text) would be preferred to PostgreSQL's to_json(anyelement). Writers need rights on the sources alone. With
-- row_security = off, the functions fail if row-level security would hide rows from them.

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

-- A term's id: 64 bits of a hash of its values. Among a hundred thousand terms two are the same once in four billion
-- databases. Names hold no control characters, so none has the separator.
CREATE FUNCTION term_id(carrier text, feature feature, detailed_status detailed_status, status status) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
RETURN hashtextextended(concat_ws(E'\x01', carrier, feature, detailed_status, status), 0);

-- The contract's Time; rounded to milliseconds, like the columns.
CREATE FUNCTION rfc3339(moment timestamptz) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN to_char(moment::timestamptz(3) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');

CREATE FUNCTION json_of(value text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce(to_json(value)::text, 'null');

-- Brings the read model of some numbers in line with the sources, whatever it held before: writes only what differs, and
-- deletes what is left of numbers that the sources no longer have. Works in batches of 1,000, so that memory is bounded.
-- `phone_numbers` should be in order, so that no two writers wait for each other. Returns the phone numbers of written rows.
-- updated_at of an item moves forward whenever the item changes, and never back; a later time that a writer gives is kept.
-- One number and a thousand have the same plans: indexes, and hashes of what they found. To plan each call would take four
-- times as long for one number. Postings are found by subqueries, or the planner might read the whole table. Each ORDER BY
-- is one that only the primary key serves without sorting: otherwise, as long as the statistics are of one row, the planner
-- might read the whole of a smaller index. For the same reason BETWEEN: with `=`, any index would serve the order.
-- `named` adds terms, and returns the ids of those that it added: the next migration that changes derive renames it.
CREATE FUNCTION derive(phone_numbers text[]) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_nestloop = off SET enable_sort = off SET jit = off SET row_security = off AS $$
DECLARE
  batch text[];
  old public.items[];
  posted public.postings[];
  stale tid[];
BEGIN
  FOR start IN 1 .. cardinality(phone_numbers) BY 1000 LOOP
    batch := phone_numbers[start : start + 999];
    -- Of two writers of one number, the later one sees what the earlier one wrote.
    PERFORM FROM public.branded_phone_numbers WHERE phone_number = ANY (batch) ORDER BY phone_number FOR NO KEY UPDATE;
    old := ARRAY(SELECT items FROM public.items WHERE phone_number = ANY (batch) ORDER BY phone_number);
    -- First the items: so a concurrent change of one is found before anything else is written.
    RETURN QUERY
    WITH entry AS MATERIALIZED (
      SELECT number.phone_number, carrier, feature, detailed_status, entry.created_at,
        public.overall_status(array_agg(detailed_status) OVER (PARTITION BY number.phone_number)) AS status
      FROM public.branded_phone_numbers AS number
      LEFT JOIN (SELECT * FROM public.carrier_statuses WHERE phone_number = ANY (batch)) AS entry USING (phone_number)
      WHERE number.phone_number = ANY (batch)
    ),
    -- What each number is listed under: each entry; and the same without its carrier, so that a filter that names no
    -- carrier needs only a few terms, however many carriers there are. Without entries only its status is left of that.
    listed AS MATERIALIZED (
      SELECT public.term_id(carrier, feature, detailed_status, status), *
      FROM (
        SELECT phone_number, carrier, feature, detailed_status, status,
          '{"carrier":' || to_json(carrier) || ',"feature":"' || feature || '","detailedStatus":"' || detailed_status
            || '","createdAt":"' || public.rfc3339(created_at) || '"}' AS json
        FROM entry WHERE carrier IS NOT NULL
        UNION ALL
        SELECT DISTINCT phone_number, '', feature, detailed_status, status, NULL FROM entry
      ) AS term
    ), list AS MATERIALIZED (
      SELECT phone_number, status, array_agg(term_id ORDER BY term_id) AS term_ids,
        coalesce(string_agg(json, ',' ORDER BY carrier, feature::text COLLATE "C"), '') AS carrier_statuses
      FROM listed GROUP BY phone_number, status
    ), fresh AS MATERIALIZED (
      SELECT phone_number, number.id, number.business_profile_id, number.internal_name, number.reporting_group,
        list.status, list.term_ids, tail || public.rfc3339(moment) || '"}' AS item_tail, moment AS updated_at
      FROM public.branded_phone_numbers AS number JOIN list USING (phone_number)
      LEFT JOIN unnest(old) AS old USING (phone_number)
      CROSS JOIN LATERAL (SELECT
        ',"internalName":' || public.json_of(number.internal_name)
          || ',"brandingNameShort":' || public.json_of(number.branding_name_short)
          || ',"brandingNameLong":' || public.json_of(number.branding_name_long)
          || ',"reportingGroup":' || public.json_of(number.reporting_group) || ',"status":"' || list.status
          || '","carrierStatuses":[' || carrier_statuses || '],"createdAt":"' || public.rfc3339(number.created_at)
          || '","updatedAt":"' AS tail OFFSET 0
      ) AS made
      CROSS JOIN LATERAL (SELECT CASE
        WHEN old.updated_at IS NULL OR number.updated_at > old.updated_at THEN number.updated_at
        WHEN (number.id, number.business_profile_id, tail || public.rfc3339(old.updated_at) || '"}')
          = (old.id, old.business_profile_id, old.item_tail) THEN old.updated_at
        ELSE least(greatest(now(), old.updated_at + interval '1 millisecond'), '9999-12-31T23:59:59.999Z')
      END::timestamptz(3) AS moment OFFSET 0) AS dated
      WHERE number.phone_number = ANY (batch)
    ), written AS (
      INSERT INTO public.items TABLE fresh EXCEPT SELECT * FROM unnest(old) ORDER BY phone_number
      ON CONFLICT (phone_number) DO UPDATE SET (
        phone_number, id, business_profile_id, internal_name, reporting_group, status, term_ids, item_tail, updated_at
      ) = ROW(excluded.*)
      RETURNING phone_number
    ), gone AS (
      DELETE FROM public.items WHERE phone_number = ANY (ARRAY(
        SELECT phone_number FROM public.items
        WHERE phone_number = ANY (batch) AND phone_number NOT IN (SELECT phone_number FROM fresh) ORDER BY phone_number
      )) RETURNING phone_number
    ), named AS (
      INSERT INTO public.terms SELECT term_id, carrier, feature, detailed_status, status FROM listed
      EXCEPT SELECT * FROM public.terms WHERE id = ANY (ARRAY(SELECT term_id FROM listed)) ORDER BY term_id
      ON CONFLICT (id) DO UPDATE SET (id, carrier, feature, detailed_status, status) = ROW(excluded.*)
      RETURNING id
    )
    TABLE written UNION ALL TABLE gone
    UNION ALL SELECT phone_number FROM listed WHERE term_id = ANY (ARRAY(TABLE named));
    -- Then the postings that are missing, or differ in an attribute, and where those are that they replace.
    SELECT array_agg(posting), array_agg(place) INTO posted, stale FROM (
      SELECT (term_id, phone_number, business_profile_id, reporting_group, internal_name)::public.postings AS posting, (
        SELECT ctid FROM public.postings
        WHERE postings.term_id = item.term_id AND postings.phone_number BETWEEN item.phone_number AND item.phone_number
        ORDER BY postings.phone_number
      ) AS place
      FROM (
        SELECT *, unnest(term_ids) AS term_id FROM public.items WHERE phone_number = ANY (batch) ORDER BY phone_number
      ) AS item
      OFFSET 0
    ) AS wanted
    WHERE posting IS DISTINCT FROM (SELECT postings FROM public.postings WHERE ctid = place);
    RETURN QUERY DELETE FROM public.postings WHERE ctid = ANY (stale || ARRAY(
      SELECT (
        SELECT ctid FROM public.postings
        WHERE term_id = former.term_id AND phone_number BETWEEN former.phone_number AND former.phone_number
        ORDER BY phone_number
      ) FROM (
        SELECT unnest(term_ids) AS term_id, phone_number FROM unnest(old)
        EXCEPT (
          SELECT unnest(term_ids), phone_number FROM public.items WHERE phone_number = ANY (batch) ORDER BY phone_number
        )
      ) AS former
    )) RETURNING phone_number;
    RETURN QUERY INSERT INTO public.postings SELECT * FROM unnest(posted) RETURNING phone_number;
  END LOOP;
END $$;

-- A phone number is a number's identity.
CREATE FUNCTION refuse_rename() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE 'phone_number never changes: delete the row of % in % and insert one of %',
    OLD.phone_number, TG_TABLE_NAME, NEW.phone_number USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER refuse_rename BEFORE UPDATE ON branded_phone_numbers
FOR EACH ROW WHEN (OLD.phone_number IS DISTINCT FROM NEW.phone_number) EXECUTE FUNCTION refuse_rename();
CREATE TRIGGER refuse_rename BEFORE UPDATE ON carrier_statuses
FOR EACH ROW WHEN (OLD.phone_number IS DISTINCT FROM NEW.phone_number) EXECUTE FUNCTION refuse_rename();

-- Numbers that a transaction has put off deriving, because it changes each in several statements, by `SET LOCAL
-- branded_phone_numbers.defer = 'on'` (an import: 'import'). They are derived at `SET CONSTRAINTS derive_deferred
-- IMMEDIATE`, or else at the commit, so that nobody can leave the read model wrong; under session_replication_role =
-- replica, too. The trigger fires once for each row of deferred, but the first call deletes all of them; later calls look
-- only for their own row, since a scan would read all the dead rows each time.
CREATE FUNCTION derive_deferred() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  phone_numbers text[];
BEGIN
  IF EXISTS (SELECT FROM public.deferred WHERE ctid = NEW.ctid) THEN
    phone_numbers := ARRAY(SELECT DISTINCT unnest(deferred.phone_numbers) FROM public.deferred ORDER BY 1);
    DELETE FROM public.deferred;
    PERFORM public.derive(phone_numbers) LIMIT 1;
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER derive_deferred AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION derive_deferred();
ALTER TABLE deferred ENABLE ALWAYS TRIGGER derive_deferred;

-- Derives the numbers of the rows that a statement has changed, one or a million. Of the rows that derive returns, all at
-- its end, one is enough: PERFORM would keep them in memory. Refuses a further entry of a number that then has more than
-- the contract allows: it could be exported, but not imported. Entries are counted once derive has locked the number, and
-- by the primary key, since the plan may have been made when the table was empty. An import has checked its lines itself,
-- so that counting would only slow it down.
CREATE FUNCTION derive_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET row_security = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  defer text := current_setting('branded_phone_numbers.defer', true);
  full_number text;
BEGIN
  IF TG_OP <> 'TRUNCATE' AND defer IN ('on', 'import') THEN
    INSERT INTO public.deferred SELECT array_agg(DISTINCT phone_number) FROM changed HAVING count(*) > 0;
  ELSIF TG_OP <> 'TRUNCATE' THEN
    PERFORM public.derive(ARRAY(SELECT DISTINCT phone_number FROM changed ORDER BY 1)) LIMIT 1;
  ELSIF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
    -- TRUNCATE sees what others have committed, but an old snapshot does not.
    RAISE 'TRUNCATE needs the isolation level READ COMMITTED: begin the transaction with it'
      USING ERRCODE = 'feature_not_supported';
  ELSIF EXISTS (SELECT FROM public.branded_phone_numbers) THEN
    PERFORM public.derive(ARRAY(SELECT phone_number FROM public.branded_phone_numbers ORDER BY 1)) LIMIT 1;
  ELSE
    TRUNCATE public.items, public.terms, public.postings;
  END IF;
  IF TG_OP = 'INSERT' AND TG_TABLE_NAME = 'carrier_statuses' AND defer IS DISTINCT FROM 'import' THEN
    SELECT phone_number INTO full_number FROM (SELECT DISTINCT phone_number FROM changed) AS number
    WHERE EXISTS (SELECT FROM public.carrier_statuses AS entry WHERE entry.phone_number = number.phone_number OFFSET 1000)
    LIMIT 1;
    IF FOUND THEN
      RAISE '% would have more than 1000 carrier statuses', full_number USING ERRCODE = 'check_violation';
    END IF;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER derive_inserted AFTER INSERT ON branded_phone_numbers
REFERENCING NEW TABLE AS changed EXECUTE FUNCTION derive_changed();
CREATE TRIGGER derive_updated AFTER UPDATE ON branded_phone_numbers
REFERENCING NEW TABLE AS changed EXECUTE FUNCTION derive_changed();
CREATE TRIGGER derive_deleted AFTER DELETE ON branded_phone_numbers
REFERENCING OLD TABLE AS changed EXECUTE FUNCTION derive_changed();
CREATE TRIGGER derive_truncated AFTER TRUNCATE ON branded_phone_numbers EXECUTE FUNCTION derive_changed();
CREATE TRIGGER derive_inserted AFTER INSERT ON carrier_statuses
REFERENCING NEW TABLE AS changed EXECUTE FUNCTION derive_changed();
CREATE TRIGGER derive_updated AFTER UPDATE ON carrier_statuses
REFERENCING NEW TABLE AS changed EXECUTE FUNCTION derive_changed();
CREATE TRIGGER derive_deleted AFTER DELETE ON carrier_statuses
REFERENCING OLD TABLE AS changed EXECUTE FUNCTION derive_changed();
CREATE TRIGGER derive_truncated AFTER TRUNCATE ON carrier_statuses EXECUTE FUNCTION derive_changed();

REVOKE EXECUTE ON FUNCTION derive FROM PUBLIC;
