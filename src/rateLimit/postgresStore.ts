/**
 * The rate limit's store in PostgreSQL: each client's sliding log in an unlogged table, tested and extended under the lock of
 * the client's row, where instances take turns, and on the database's clock, which serves them all. Requests that come while
 * a statement counts others are counted together by the next one.
 */
import { setImmediate } from 'node:timers/promises';
import { RateLimiterPostgres, type RateLimiterRes } from 'rate-limiter-flexible';
import { closeDatabase, type Database, openDatabase } from '../database/connect.js';
import { causeOf, codeOf, INSUFFICIENT_PRIVILEGE, READ_ONLY } from '../database/errors.js';
import { UserError } from '../userError.js';
import { type LimitStore, STORE_TIMEOUT_MS } from './limiter.js';
import { type ClientWindow, resultOf, StoreClock, WINDOW_MS } from './slidingLog.js';

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
    consume: (client, came) =>
      limiter.consume(client, 1, { came }).catch((error) => {
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
 * Counts requests of the clients $1, which came at the times in $2, earliest first: as many of each client's as come before the
 * first that does not fit below the limit $3, by slidingLog.ts. `lead` gives the request with which a window would be over
 * it. The clock is read under the lock of the client's row. Requests in the future are from before the clock was set back; they
 * count as now, or the client would be blocked for as long as the step. Without OFFSET 0, the clock and the log would be read
 * again wherever they are named.
 */
const COUNT = `
INSERT INTO rate_limits AS log (client, requests, counted)
SELECT client, wanted[:$3::integer], least(cardinality(wanted), $3::integer)
FROM unnest($1::text[], $2::text[]) AS sent (client, times),
  LATERAL (SELECT ARRAY(
    SELECT least(to_timestamp(time / 1000000), clock_timestamp()) FROM unnest(times::float8[]) AS time
  ) AS wanted OFFSET 0) AS came
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
        SELECT coalesce(min(place) - 1, cardinality(wanted))::integer
        FROM unnest(wanted) WITH ORDINALITY AS next (request, place)
        WHERE EXISTS (
          SELECT FROM (
            SELECT request AS first, lead(request, $3::integer) OVER (ORDER BY request) AS last
            FROM unnest(recent || wanted[:place::integer]) AS request
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

/** What COUNT returns for a client: its log, and how many requests it counted. */
interface Counted extends ClientWindow {
  client: string;
  counted: number;
}

/** What the database says of a request. */
interface Outcome {
  log: ClientWindow;
  isCounted: boolean;
  /** How many of the client's requests that came later were counted with it. */
  later: number;
}

interface Waiting {
  came: number;
  resolve(outcome: Outcome): void;
  reject(reason: unknown): void;
}

/** For a request that waited for longer than a window: it was decided long ago, and no other depends on it any more. */
const TOO_LATE = new Error('not counted in time');

/** A store as the library has it written: by `_upsert`, which counts, and `_getRateLimiterRes`, which says what that means. */
class SlidingLog extends RateLimiterPostgres {
  readonly #database: Database;
  readonly #clock = new StoreClock();
  #waiting = new Map<string, Waiting[]>();
  #isCounting = false;
  #reconnected = Number.NEGATIVE_INFINITY;

  constructor(database: Database, points: number) {
    const ours = { tableCreated: true, clearExpiredByTimeout: false, keyPrefix: '' };
    super({ storeClient: database.$client, storeType: 'client', points, duration: WINDOW_MS / 1000, ...ours });
    this.#database = database;
  }

  _upsert(client: string, _points: number, _ms: number, _force: boolean, { came }: { came: number }): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      this.#wait(client, { came, resolve, reject });
      if (!this.#isCounting) void this.#countAll();
    });
  }

  _getRateLimiterRes(_client: string, _points: number, { log, isCounted, later }: Outcome): RateLimiterRes {
    return resultOf(log, this.points, isCounted, later);
  }

  #wait(client: string, request: Waiting): void {
    const requests = this.#waiting.get(client) ?? [];
    this.#waiting.set(client, requests);
    requests.push(request);
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
    const sent = performance.now();
    const batch = this.#takeWaiting(sent);
    // In the same order on all instances, so that no two wait for each other's rows.
    const clients = [...batch.keys()].sort();
    const times = clients.map((client) => `{${batch.get(client)?.map(({ came }) => this.#clock.at(came))}}`);
    const { sockets } = this.#database;
    // Again and again: a socket may not have been silent for long enough yet.
    const overdue = setInterval(() => sockets.overdue(), sockets.answerLimitMs);
    try {
      const rows = this.#database.$client.unsafe<Counted[]>(COUNT, [clients, times, this.points], { prepare: true });
      for (const { client, counted, ...log } of await rows) {
        const requests = batch.get(client) ?? [];
        const isPast = requests.map(({ came }) => StoreClock.isPast(this.#clock.at(came), log.now));
        this.#clock.learn(sent, log.now);
        for (const [i, request] of requests.entries()) {
          // By the clock as it was known before; it is counted by what is known now.
          if (isPast[i]) this.#wait(client, request);
          else request.resolve({ log, isCounted: i < counted, later: counted - i - 1 });
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

  /** Takes the requests that wait, by client, without those that came too long before `now` to matter. */
  #takeWaiting(now: number): Map<string, Waiting[]> {
    const batch = new Map<string, Waiting[]>();
    for (const [client, requests] of this.#waiting) {
      const isInTime = ({ came }: Waiting) => came > now - WINDOW_MS;
      for (const request of requests) if (!isInTime(request)) request.reject(TOO_LATE);
      if (requests.some(isInTime)) batch.set(client, requests.filter(isInTime));
    }
    this.#waiting = new Map();
    return batch;
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
  SELECT client, coalesce(requests[cardinality(requests)], '-infinity') AS latest FROM rate_limits
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
