/**
 * The rate limit's store in PostgreSQL: each client's sliding log is a row of an unlogged table, which an instance locks while
 * it tests and extends the log, by the database's clock. Requests that are received during one statement, or in one turn of
 * the event loop, are counted together by the next.
 */
import { setImmediate as endOfTurn } from 'node:timers/promises';
import { RateLimiterPostgres, type RateLimiterRes } from 'rate-limiter-flexible';
import { inBatches } from '../../database/batches.js';
import { Connection, rowsOf } from '../../database/connection.js';
import { causeOf, failureOf, reasonOf } from '../../database/errors.js';
import { Pool } from '../../database/pool.js';
import { UserError } from '../../userError.js';
import { type Counted, type LimitStore, resultOf, STORE_TIMEOUT_MS, timeoutError, WINDOW_MS } from './limiter.js';

const SWEEP_INTERVAL_MS = 60_000;
/** Rows that a statement of a sweep reads, so that it stays below its time limit however many clients there are. */
const SWEEP_BATCH = 200;
/** Milliseconds between attempts to open a connection, or to find a server that is not read-only. */
const RETRY_MS = 1000;
const CLOSE_TIMEOUT_SECONDS = 1;

/** Opens the store for a limit of `points` requests in a window, in a migrated database. */
export function openPostgresStore(url: string, points: number, onSweepFailure: (reason: Error) => void): LimitStore {
  // Counts follow each other on one connection; not in the pages' pool, since a page must not wait for a client's locked row.
  const pool = new Pool((onBroken) => new Connection(url, { statementTimeout: STORE_TIMEOUT_MS, onBroken }), {
    size: 1,
    retryMs: RETRY_MS,
  });
  const limiter = new SlidingLog(pool, points);
  let isClosed = false;
  const sweep = () =>
    sweepAll(pool).catch((error) => {
      if (!isClosed) onSweepFailure(causeOf(error));
    });
  let sweeps: NodeJS.Timeout | undefined;
  return {
    kind: 'postgresql',
    consume: (client) =>
      limiter.consume(client).catch((error) => {
        // A refusal is no Error.
        const isPermanent = error instanceof Error && ['unusable', 'hidden'].includes(failureOf(error));
        throw isPermanent ? privilegeError(error) : error;
      }),
    startSweeping() {
      sweeps = setInterval(sweep, SWEEP_INTERVAL_MS).unref();
      void sweep();
    },
    async close() {
      isClosed = true;
      clearInterval(sweeps);
      await pool.close(CLOSE_TIMEOUT_SECONDS);
    },
  };
}

function privilegeError(error: Error): UserError {
  return new UserError(
    `DATABASE_URL: the rate limit can't be counted: ${reasonOf(error)}; grant its role what docs/operations.md lists, or set REDIS_URL`,
  );
}

/**
 * Counts requests: for each of the clients $1 the number in $2, or as many as fit into its last second with a limit of $3.
 *
 * - `asked`: how many requests to count, which an update finds in `excluded.counted`.
 * - `now`: the clock, read while the client's row is locked.
 * - `recent`: the requests of the last second. After the clock was set back, times in the future become the current time:
 *   otherwise, the client would be blocked until then. OFFSET 0 keeps PostgreSQL from evaluating it for each reference.
 * - `granted`: how many of these fit, and are appended; stored in `counted`.
 */
const COUNT = `
INSERT INTO rate_limits AS log (client, requests, counted)
SELECT client, array_fill(clock_timestamp(), ARRAY[asked]), asked
FROM unnest($1::text[], $2::integer[]) AS sent (client, asked)
ON CONFLICT (client) DO UPDATE SET (requests, counted) = (
  SELECT recent || array_fill(now, ARRAY[granted]), granted
  FROM (SELECT clock_timestamp() AS now) AS clock,
    LATERAL (SELECT ARRAY(SELECT least(r, now) FROM unnest(log.requests) AS r WHERE r > now - interval '1s') AS recent OFFSET 0) AS past,
    LATERAL (SELECT greatest(0, least(excluded.counted, $3::integer - cardinality(recent))) AS granted) AS room
)
RETURNING client, counted AS granted, cardinality(requests) AS total,
  extract(epoch FROM requests[1] + interval '1s' - clock_timestamp())::float8 * 1000 AS "waitMs"`;

interface CountedRow {
  client: string;
  granted: number;
  /** How many requests the client's last second has now. */
  total: number;
  /** Milliseconds until the oldest of them is a second old. */
  waitMs: number;
}

interface Request {
  client: string;
  receivedAt: number;
}

/** A store as rate-limiter-flexible's README describes them. */
class SlidingLog extends RateLimiterPostgres {
  readonly #pool: Pool;
  /** Counts by one statement at a time: concurrent ones would count fewer requests each, at the same cost for PostgreSQL. */
  readonly #count = inBatches<Request, Counted>(endOfTurn, (requests) => this.#countAll(requests));

  constructor(pool: Pool, points: number) {
    // Migrations create the table, and sweeps remove expired rows.
    const table = { tableCreated: true, clearExpiredByTimeout: false, keyPrefix: '' };
    super({ storeClient: pool, storeType: 'client', points, duration: WINDOW_MS / 1000, ...table });
    this.#pool = pool;
  }

  _upsert(client: string): Promise<Counted> {
    return this.#count({ client, receivedAt: performance.now() });
  }

  _getRateLimiterRes(_client: string, _points: number, counted: Counted): RateLimiterRes {
    return resultOf(counted, this.points);
  }

  /** Counts requests in one statement, except those whose callers have given up. @throws if there is no connection */
  async #countAll(requests: readonly Request[]): Promise<(request: Request) => Counted> {
    const connection = await this.#pool.takeOpened();
    if (!connection) throw this.#pool.failure;
    const earliest = performance.now() - STORE_TIMEOUT_MS;
    const asked = new Map<string, number>();
    /** For each request to count, how many requests of the same client are counted before it. */
    const predecessors = new Map<Request, number>();
    for (const request of requests) {
      if (request.receivedAt <= earliest) continue;
      const before = asked.get(request.client) ?? 0;
      predecessors.set(request, before);
      asked.set(request.client, before + 1);
    }
    // In the same order on all instances, so that there are no deadlocks.
    const clients = [...asked.keys()].sort();
    const values = [clients, clients.map((client) => Math.min(asked.get(client) ?? 0, this.points)), this.points];
    const rows = await connection.run(({ $client }) =>
      rowsOf($client.unsafe<CountedRow[]>(COUNT, values, { prepare: true })),
    );
    const rowOf = new Map(rows.map((row) => [row.client, row]));
    return (request) => {
      const before = predecessors.get(request);
      const row = rowOf.get(request.client);
      if (before === undefined || !row) throw timeoutError();
      const { granted, total, waitMs } = row;
      return { consumed: before < granted ? total - granted + before + 1 : this.points + 1, waitMs };
    };
  }
}

/**
 * Reads the next clients after $1, at most $2, and removes the idle ones: the latest request is more than a minute ago or, if
 * the clock was set back, more than a minute ahead. Returns the last client that it read. It skips locked rows: while
 * it waited for them, requests would wait for the rows that it has locked.
 */
const SWEEP = `
WITH batch AS (
  SELECT client, requests[cardinality(requests)] AS latest FROM rate_limits
  WHERE client > $1 ORDER BY client LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM rate_limits USING batch
  WHERE rate_limits.client = batch.client AND latest NOT BETWEEN now() - interval '1 minute' AND now() + interval '1 minute'
)
SELECT max(client) AS last FROM batch`;

interface Swept {
  last: string | null;
}

/** Removes idle clients in small steps, because requests are counted meanwhile. Without a connection, the next sweep does it. */
async function sweepAll(pool: Pool): Promise<void> {
  for (let last: string | null = ''; last !== null; ) {
    const connection = pool.take();
    if (!connection) return;
    const values: (string | number)[] = [last, SWEEP_BATCH];
    const [swept]: Swept[] = await connection.run(({ $client }) =>
      rowsOf($client.unsafe<Swept[]>(SWEEP, values, { prepare: true })),
    );
    last = swept?.last ?? null;
  }
}
