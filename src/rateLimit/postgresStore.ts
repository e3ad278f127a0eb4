/**
 * The rate limit's store in PostgreSQL: the times of each client's counted requests in an unlogged table, tested and
 * extended under the lock of the client's row, where instances take turns, and on the database's clock, which serves them
 * all. Requests that come while a statement counts others are counted together by the next one.
 */
import { setImmediate } from 'node:timers/promises';
import { RateLimiterPostgres, RateLimiterRes } from 'rate-limiter-flexible';
import { closeDatabase, type Database, openDatabase } from '../database/connect.js';
import { causeOf, codeOf, INSUFFICIENT_PRIVILEGE, READ_ONLY } from '../database/errors.js';
import { UserError } from '../userError.js';
import { type LimitStore, STORE_TIMEOUT_MS, WINDOW_MS } from './limiter.js';

/** Milliseconds between sweeps of clients that have stopped sending. */
const SWEEP_INTERVAL_MS = 60_000;
/** The rows that one statement of a sweep looks at, so that none reaches its time limit, even with very many clients. */
const SWEEP_BATCH = 200;
/** For counting, and for the sweep. A separate pool: no page must wait behind a client's locked row, nor the other way round. */
const CONNECTIONS = 2;
/** Milliseconds for what still runs when the store is closed. */
const CLOSE_TIMEOUT_MS = 1000;

/** Opens the store of a limit of `points` requests in any one second, on a migrated database. */
export function openPostgresStore(url: string, points: number, onSweepFailure: (reason: Error) => void): LimitStore {
  const database = openDatabase(url, { connections: CONNECTIONS, statementTimeout: STORE_TIMEOUT_MS });
  const limiter = new SlidingLog(database, points);
  let isClosed = false;
  const sweep = () =>
    sweepAll(database).catch((error) => {
      if (!isClosed) onSweepFailure(causeOf(error));
    });
  let sweeps: NodeJS.Timeout | undefined;
  return {
    kind: 'postgresql',
    consume: (client) =>
      limiter.consume(client).catch((error) => {
        throw codeOf(error) === INSUFFICIENT_PRIVILEGE ? mayNotCount(error) : error;
      }),
    startSweeping() {
      sweeps = setInterval(sweep, SWEEP_INTERVAL_MS).unref();
      void sweep();
    },
    async close() {
      isClosed = true;
      clearInterval(sweeps);
      await closeDatabase(database, CLOSE_TIMEOUT_MS / 1000);
    },
  };
}

function mayNotCount({ message }: Error): UserError {
  return new UserError(
    `DATABASE_URL: the rate limit can't be counted: ${message}; grant its role what docs/operations.md lists, or set REDIS_URL`,
  );
}

/**
 * Counts for each of the clients $1 as many requests as $2 says, unless it has $3 in the last second. The clock is read
 * under the lock of the client's row, so its requests are in order. Those in the future are from before the clock was set
 * back; they count as now, or the client would be blocked for as long as the step. Without OFFSET 0, the clock and the log
 * would be read again wherever they are named.
 */
const COUNT = `
INSERT INTO rate_limits AS log (client, requests, counted)
SELECT client, array_fill(clock_timestamp(), ARRAY[fitting]), fitting
FROM unnest($1::text[], $2::integer[]) AS wanted (client, number),
  LATERAL (SELECT least(number, $3::integer) AS fitting) AS empty_log
ON CONFLICT (client) DO UPDATE SET (requests, counted) = (
  SELECT recent || array_fill(moment, ARRAY[fitting]), fitting
  FROM
    (SELECT clock_timestamp() AS moment OFFSET 0) AS clock,
    LATERAL (SELECT ARRAY(
      SELECT least(request, moment) FROM unnest(log.requests) AS request
      WHERE request > moment - interval '1 second'
      ORDER BY request
    ) AS recent OFFSET 0) AS log_window,
    LATERAL (SELECT greatest(0, least(excluded.counted, $3::integer - cardinality(recent))) AS fitting) AS room
)
RETURNING client, counted, cardinality(requests) AS total,
  extract(epoch FROM requests[1] + interval '1 second' - clock_timestamp())::float8 * 1000 AS wait_ms`;

/** What COUNT returns for a client: how many requests it counted, with them how many there are, and until the oldest leaves. */
interface Counted {
  client: string;
  counted: number;
  total: number;
  wait_ms: number;
}

/** What it says to one of the client's requests. */
interface Place {
  /** Its place in the window; beyond the limit where it was not counted. */
  consumed: number;
  waitMs: number;
}

interface Waiting {
  resolve(place: Place): void;
  reject(reason: unknown): void;
}

/** The library's limiter, with our statement. */
class SlidingLog extends RateLimiterPostgres {
  readonly #database: Database;
  #waiting = new Map<string, Waiting[]>();
  #isCounting = false;
  #reconnected = Number.NEGATIVE_INFINITY;

  constructor(database: Database, points: number) {
    const ours = { tableCreated: true, clearExpiredByTimeout: false, keyPrefix: '' };
    super({ storeClient: database.$client, storeType: 'client', points, duration: WINDOW_MS / 1000, ...ours });
    this.#database = database;
  }

  _upsert(client: string): Promise<Place> {
    return new Promise((resolve, reject) => {
      const others = this.#waiting.get(client) ?? [];
      this.#waiting.set(client, others);
      others.push({ resolve, reject });
      if (!this.#isCounting) void this.#countAll();
    });
  }

  _getRateLimiterRes(_client: string, _points: number, { consumed, waitMs }: Place): RateLimiterRes {
    return new RateLimiterRes(Math.max(0, this.points - consumed), waitMs, consumed, consumed === 1);
  }

  /** Sends one statement after the other: several at once would count fewer requests each, for as much of PostgreSQL's CPU. */
  async #countAll(): Promise<void> {
    this.#isCounting = true;
    // Requests that come in one turn of the event loop are counted together.
    await setImmediate();
    while (this.#waiting.size > 0) await this.#countWaiting();
    this.#isCounting = false;
  }

  /** Never rejects. */
  async #countWaiting(): Promise<void> {
    const batch = this.#waiting;
    this.#waiting = new Map();
    // In the same order on all instances, so that no two wait for each other's rows.
    const clients = [...batch.keys()].sort();
    const numbers = clients.map((client) => batch.get(client)?.length ?? 0);
    const { sockets } = this.#database;
    // Again and again: a socket may not have been silent for long enough yet.
    const overdue = setInterval(() => sockets.overdue(), sockets.answerLimitMs);
    try {
      const rows = this.#database.$client.unsafe<Counted[]>(COUNT, [clients, numbers, this.points], { prepare: true });
      for (const { client, counted, total, wait_ms: waitMs } of await rows) {
        for (const [i, { resolve }] of (batch.get(client) ?? []).entries()) {
          resolve({ consumed: i < counted ? total - counted + i + 1 : this.points + 1, waitMs });
        }
      }
    } catch (error) {
      for (const { reject } of [...batch.values()].flat()) reject(error);
      // A standby, as after a switch-over: the address may lead to the new primary by now.
      if (codeOf(error) === READ_ONLY) this.#reconnect();
    } finally {
      clearInterval(overdue);
    }
  }

  /** Replaces the connections; not again while the new ones are being opened. */
  #reconnect(): void {
    if (performance.now() - this.#reconnected < WINDOW_MS) return;
    this.#reconnected = performance.now();
    this.#database.sockets.reconnect();
  }
}

/**
 * Removes those of the next clients after $1, $2 at most, whose latest request is more than a minute away: before, or after
 * if the clock was set back. Returns the last of the clients it looked at. Skips locked rows: while it waited for one,
 * requests would wait for the rows that it has locked.
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

/** Removes the clients that have stopped sending, in small steps, as requests are counted meanwhile. */
async function sweepAll({ $client }: Database): Promise<void> {
  for (let last: string | null = ''; last !== null; ) {
    const rows: { last: string | null }[] = await $client.unsafe(SWEEP, [last, SWEEP_BATCH], { prepare: true });
    last = rows[0]?.last ?? null;
  }
}
