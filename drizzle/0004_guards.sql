-- Fails if row-level security would hide rows: those that it does not see would be deleted from the read model.
ALTER FUNCTION derive SET row_security = off;

-- Derives the numbers of the rows that a statement has changed, one or a million. Of the rows that derive returns, all at
-- its end, one is enough: PERFORM would keep them in memory. Refuses a further entry of a number that then has more than
-- the contract allows: it could be exported, but not imported. Entries are counted once derive has locked the number, and
-- by the primary key, since the plan may have been made when the table was empty. An import has checked its lines itself,
-- so that counting would only slow it down.
CREATE OR REPLACE FUNCTION derive_changed() RETURNS trigger
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

-- Room on each page for the next version of a row, which then stays on it: a HOT update changes no index. Pages that
-- exist gain it as their rows are rewritten. Waits for a VACUUM of these tables, and keeps no other statement waiting.
SET LOCAL lock_timeout = 0;
ALTER TABLE items SET (fillfactor = 85);
ALTER TABLE carrier_statuses SET (fillfactor = 90);
