-- The rate limit's store. Unlogged, since losing a second of data in a crash does no harm; with free space on each page for
-- the next version of a row, since every counted request writes one.
CREATE UNLOGGED TABLE "rate_limits" (
	"client" text COLLATE "C" PRIMARY KEY NOT NULL,
	"requests" timestamp with time zone[] NOT NULL,
	"counted" integer NOT NULL
) WITH (fillfactor = 50);
