-- The rate limit's store. Unlogged, since losing a second of data in a crash does no harm; with free space on each page for
-- the next version of a row, since every counted request writes one.
CREATE UNLOGGED TABLE "rate_limits" (
	"client" text COLLATE "C" PRIMARY KEY NOT NULL,
	"requests" timestamp with time zone[] NOT NULL,
	"allowed" boolean NOT NULL
) WITH (fillfactor = 50);
--> statement-breakpoint

-- Counts a request of a client unless it already has `points` in the last second. The lock on the client's row makes
-- instances take turns, and the clock is read under the lock, so the log is in order and one clock serves all. Times in
-- the future are from before the clock was set back; they count as now, or the client would be blocked for as long as the
-- step. `wait` is the time until the oldest counted request leaves the window, in milliseconds.
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
        SELECT least(request, moment) FROM unnest(log.requests) AS request
        WHERE request > moment - interval '1 second'
        ORDER BY request
      ) AS recent) AS log_window
  )
  RETURNING log.allowed, cardinality(log.requests),
    extract(epoch FROM log.requests[1] + interval '1 second' - clock_timestamp()) * 1000
  INTO allowed, counted, wait;
END $$;
