/**
 * The rate limit's store in PostgreSQL: each client's sliding log is a row of an unlogged table, which an instance locks while
 * it tests and extends the log, by the database's clock. Requests that are received during one statement are counted together
 * by the next.
 */
import { setImmediate } from 'node:timers/promises';
import { RateLimiterPostgres, type RateLimiterRes } from 'rate-limiter-flexible';
import { closeDatabase, type Database, openDatabase } from '../../database/connect.js';
import { causeOf, codeOf, INSUFFICIENT_PRIVILEGE, READ_ONLY } from '../../database/errors.js';
import { UserError } from '../../userError.js';
import { type LimitStore, STORE_TIMEOUT_MS } from './limiter.js';
import { type ClientWindow, resultOf, StoreClock, WINDOW_MS } from './slidingLog.js';

/** Milliseconds between sweeps, which remove idle clients. */
const SWEEP_INTERVAL_MS = 60_000;
/** Rows that a statement of a sweep reads, so that it stays below its time limit however many clients there are. */
const SWEEP_BATCH = 200;
/** One for counting, one for sweeps; not of the pages' pool, since a page must not wait for a client's locked row. */
const CONNECTIONS = 2;
/** Seconds that running statements have to finish when the store is closed. */
const CLOSE_TIMEOUT_SECONDS = 1;

/** Opens the store for a limit of `points` requests in a window, in a migrated database. */
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
    consume: (client, receivedAt) =>
      limiter.consume(client, 1, { receivedAt }).catch((error) => {
        throw codeOf(error) === INSUFFICIENT_PRIVILEGE ? privilegeError(error) : error;
      }),
    startSweeping() {
      sweeps = setInterval(sweep, SWEEP_INTERVAL_MS).unref();
      void sweep();
    },
    async close() {
      isClosed = true;
      clearInterval(sweeps);
      await closeDatabase(database, CLOSE_TIMEOUT_SECONDS);
    },
  };
}

function privilegeError({ message }: Error): UserError {
  return new UserError(
    `DATABASE_URL: the rate limit can't be counted: ${message}; grant its role what docs/operations.md lists, or set REDIS_URL`,
  );
}

/**
 * Counts requests of several clients.
 *
 * - $1: the clients; $2: the times of each client's requests, earliest first; $3: the limit.
 * - It counts each client's requests up to the first one that does not fit (slidingLog.ts). `lead` returns the request that
 *   would exceed the limit of a window that starts at `first`.
 * - The clock is read while the client's row is locked.
 * - OFFSET 0 keeps PostgreSQL from evaluating the clock and the log again for each reference to them.
 */
const COUNT = `
INSERT INTO rate_limits AS log (client, requests, counted)
SELECT client, wanted[:$3::integer], least(cardinality(wanted), $3::integer)
FROM unnest($1::text[], $2::text[]) AS sent (client, times),
  LATERAL (SELECT ARRAY(
    SELECT least(to_timestamp(time / 1000000), clock_timestamp()) FROM unnest(times::float8[]) AS time
  ) AS wanted OFFSET 0) AS received
ON CONFLICT (client) DO UPDATE SET (requests, counted) = (
  SELECT ARRAY(SELECT request FROM unnest(recent || wanted[:fitting]) AS request ORDER BY request), fitting
  FROM
    (SELECT clock_timestamp() AS moment OFFSET 0) AS clock,
    LATERAL (SELECT excluded.requests AS wanted, ARRAY(
      SELECT least(request, moment) FROM unnest(log.requests) AS request
      WHERE request > moment - interval '2 seconds'
    ) AS recent OFFSET 0) AS logged,
    LATERAL (SELECT CASE
      WHEN cardinality(recent) + cardinality(wanted) <= $3::integer THEN cardinality(wanted)
      ELSE (
        SELECT coalesce(min(ordinal) - 1, cardinality(wanted))::integer
        FROM unnest(wanted) WITH ORDINALITY AS next (request, ordinal)
        WHERE EXISTS (
          SELECT FROM (
            SELECT request AS first, lead(request, $3::integer) OVER (ORDER BY request) AS last
            FROM unnest(recent || wanted[:ordinal::integer]) AS request
          ) AS span
          WHERE last < first + interval '1 second' AND next.request BETWEEN first AND last
        )
      )
    END AS fitting OFFSET 0) AS room
)
RETURNING client, counted, extract(epoch FROM clock_timestamp())::float8 * 1000000 AS now,
  (SELECT count(*)::integer FROM unnest(requests) AS request WHERE request > clock_timestamp() - interval '1 second') AS recent,
  extract(epoch FROM interval '1 second' - (clock_timestamp() - requests[greatest(1, cardinality(requests) - $3::integer + 1)]))::float8
    * 1000 AS "waitMs"`;

/** A row that COUNT returns. */
interface Counted extends ClientWindow {
  client: string;
  /** How many of the client's requests were counted. */
  counted: number;
  /** The store's clock, in microseconds. */
  now: number;
}

interface WaitingRequest {
  receivedAt: number;
  resolve(result: RateLimiterRes): void;
  reject(reason: unknown): void;
}

/** The error of a request that waited for a whole window: its caller has timed out, and it would affect no later request. */
const TOO_LATE = new Error('not counted in time');

/** A store as rate-limiter-flexible's README describes them, except that `_upsert` resolves to the result itself. */
class SlidingLog extends RateLimiterPostgres {
  readonly #database: Database;
  readonly #clock = new StoreClock();
  #waiting = new Map<string, WaitingRequest[]>();
  #isCounting = false;
  #reconnectedAt = Number.NEGATIVE_INFINITY;

  constructor(database: Database, points: number) {
    // Migrations create the table, and sweeps remove expired rows.
    const table = { tableCreated: true, clearExpiredByTimeout: false, keyPrefix: '' };
    super({ storeClient: database.$client, storeType: 'client', points, duration: WINDOW_MS / 1000, ...table });
    this.#database = database;
  }

  _upsert(
    client: string,
    _points: number,
    _ms: number,
    _force: boolean,
    { receivedAt }: { receivedAt: number },
  ): Promise<RateLimiterRes> {
    return new Promise((resolve, reject) => {
      this.#enqueue(client, { receivedAt, resolve, reject });
      if (!this.#isCounting) void this.#countAll();
    });
  }

  _getRateLimiterRes(_client: string, _points: number, result: RateLimiterRes): RateLimiterRes {
    return result;
  }

  #enqueue(client: string, request: WaitingRequest): void {
    const requests = this.#waiting.get(client) ?? [];
    this.#waiting.set(client, requests);
    requests.push(request);
  }

  /** Sends one statement at a time: concurrent ones would count fewer requests each, at the same cost for PostgreSQL. */
  async #countAll(): Promise<void> {
    this.#isCounting = true;
    // Requests that are received in one turn of the event loop are counted together.
    await setImmediate();
    while (this.#waiting.size > 0) await this.#countWaiting();
    this.#isCounting = false;
  }

  /** Counts the waiting requests in one statement, and settles them. Never rejects. */
  async #countWaiting(): Promise<void> {
    const sentAt = performance.now();
    const batch = this.#takeWaiting(sentAt);
    // In the same order on all instances, so that there are no deadlocks.
    const clients = [...batch.keys()].sort();
    const times = clients.map(
      (client) => `{${batch.get(client)?.map(({ receivedAt }) => this.#clock.at(receivedAt))}}`,
    );
    const { sockets } = this.#database;
    // The connection may break at any time during the statement, and is cut only after it was silent for long enough.
    const timer = setInterval(() => sockets.reconnectIfSilent(), sockets.responseLimitMs);
    try {
      const rows = this.#database.$client.unsafe<Counted[]>(COUNT, [clients, times, this.points], { prepare: true });
      for (const { client, counted, now, ...window } of await rows) {
        const requests = batch.get(client) ?? [];
        const isPast = requests.map(({ receivedAt }) => StoreClock.isPast(this.#clock.at(receivedAt), now));
        this.#clock.learn(sentAt, now);
        for (const [i, request] of requests.entries()) {
          // The previous estimate of the clock put the request before the window: count it again by the new one.
          if (isPast[i]) this.#enqueue(client, request);
          else request.resolve(resultOf(window, this.points, i < counted, counted - i - 1));
        }
      }
    } catch (error) {
      for (const { reject } of [...batch.values()].flat()) reject(error);
      // After a switch-over, this is a standby, but the address may lead to the new primary.
      if (codeOf(error) === READ_ONLY) this.#reconnect();
    } finally {
      clearInterval(timer);
    }
  }

  /** Returns the waiting requests by client, and removes them. Rejects those that were received before the window. */
  #takeWaiting(now: number): Map<string, WaitingRequest[]> {
    const batch = new Map<string, WaitingRequest[]>();
    for (const [client, requests] of this.#waiting) {
      const isInTime = ({ receivedAt }: WaitingRequest) => receivedAt > now - WINDOW_MS;
      for (const request of requests) if (!isInTime(request)) request.reject(TOO_LATE);
      if (requests.some(isInTime)) batch.set(client, requests.filter(isInTime));
    }
    this.#waiting = new Map();
    return batch;
  }

  /** Replaces the connections, at most once in a window. */
  #reconnect(): void {
    if (performance.now() - this.#reconnectedAt < WINDOW_MS) return;
    this.#reconnectedAt = performance.now();
    this.#database.sockets.reconnect();
  }
}

/**
 * Reads the next clients after $1, at most $2, and removes the idle ones: the latest request is more than a minute ago or, if
 * the clock was set back, more than a minute ahead. Returns the last client that it read. It skips locked rows: while
 * it waited for them, requests would wait for the rows that it has locked.
 */
const SWEEP = `
WITH batch AS (
  SELECT client, coalesce(requests[cardinality(requests)], '-infinity') AS latest FROM rate_limits
  WHERE client > $1 ORDER BY client LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM rate_limits USING batch
  WHERE rate_limits.client = batch.client AND latest NOT BETWEEN now() - interval '1 minute' AND now() + interval '1 minute'
)
SELECT max(client) AS last FROM batch`;

/** Removes idle clients, in small steps, because requests are counted at the same time. */
async function sweepAll({ $client }: Database): Promise<void> {
  for (let last: string | null = ''; last !== null; ) {
    const rows: { last: string | null }[] = await $client.unsafe(SWEEP, [last, SWEEP_BATCH], { prepare: true });
    last = rows[0]?.last ?? null;
  }
}
