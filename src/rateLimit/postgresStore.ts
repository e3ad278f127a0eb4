/**
 * The rate limit's store in PostgreSQL: the times of each client's counted requests in an unlogged table, tested and
 * extended under the lock of the client's row, where instances take turns, and on the database's clock, which serves them
 * all. Requests that come together are counted by one statement. The instances are registered in the same table, which a
 * crash of PostgreSQL empties, so an instance that is still registered knows that nothing was forgotten.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { eq, sql } from 'drizzle-orm';
import { closeDatabase, type Database, openDatabase } from '../database/connect.js';
import { causeOf, codeOf, INSUFFICIENT_PRIVILEGE } from '../database/errors.js';
import { rateLimits } from '../database/schema.js';
import { UserError } from '../userError.js';
import { type Decision, GONE_AFTER_MS, type LimitStore, STORE_TIMEOUT_MS, StoreForgot } from './limiter.js';

/** Milliseconds between sweeps of clients that have stopped sending, and before a failed sweep goes on. */
const SWEEP_INTERVAL_MS = 60_000;
const SWEEP_RETRY_MS = 10_000;
/** The rows that one statement of a sweep looks at, so that none reaches its time limit, even with very many clients. */
const SWEEP_BATCH = 200;
/** A separate pool: the list's queries must not wait behind a client's locked row, nor the other way round. */
const CONNECTIONS = 3;

/** A request to be counted with the next statement. */
interface Waiting {
  resolve(decision: Decision): void;
  reject(reason: unknown): void;
}

/** Opens the store of a limit of `points` requests in any one second, on a migrated database. */
export function openPostgresStore(url: string, points: number, onSweepFailure: (reason: Error) => void): LimitStore {
  const database = openDatabase(url, { connections: CONNECTIONS, statementTimeout: STORE_TIMEOUT_MS });
  const countAll = prepareCount(database, points);
  const registerInstance = prepareRegister(database);
  const instance = `instance:${randomUUID()}`;
  const closing = new AbortController();
  let waiting = new Map<string, Waiting[]>();

  async function countWaiting(): Promise<void> {
    const batch = waiting;
    waiting = new Map();
    // In the same order on all instances, so that no two wait for each other's rows.
    const clients = [...batch.keys()].sort();
    const numbers = clients.map((client) => batch.get(client)?.length);
    try {
      for (const row of await ask(countAll.execute({ clients, numbers, instance }))) {
        for (const [i, { resolve, reject }] of (batch.get(row.client) ?? []).entries()) {
          const later = Math.max(0, row.counted - 1 - i);
          if (row.isKnown) resolve({ allowed: i < row.counted, remaining: row.remaining + later, waitMs: row.waitMs });
          else reject(new StoreForgot());
        }
      }
    } catch (error) {
      for (const { reject } of [...batch.values()].flat()) reject(error);
    }
  }

  async function ask<T>(answer: PromiseLike<T>): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      throw codeOf(causeOf(error)) === INSUFFICIENT_PRIVILEGE ? mayNotCount(causeOf(error)) : error;
    }
  }

  async function sweepUntilClosed(): Promise<void> {
    let last: string | null = null;
    while (!closing.signal.aborted) {
      let pause = SWEEP_INTERVAL_MS;
      try {
        do {
          const after: string = last ?? '';
          last = await ask(sweepAfter(database, after));
        } while (last !== null);
      } catch (error) {
        if (!closing.signal.aborted) onSweepFailure(causeOf(error));
        pause = SWEEP_RETRY_MS;
      }
      await sleep(pause, undefined, { ref: false, signal: closing.signal }).catch(() => {});
    }
  }
  void sweepUntilClosed();

  return {
    kind: 'postgresql',
    /** Requests that come in one turn of the event loop are counted together. */
    count(client) {
      return new Promise((resolve, reject) => {
        if (waiting.size === 0) setImmediate(countWaiting);
        const others = waiting.get(client) ?? [];
        waiting.set(client, others);
        others.push({ resolve, reject });
      });
    },
    async register() {
      const [row = { instances: 1, isNew: true }] = await ask(registerInstance.execute({ instance }));
      return row;
    },
    async leave() {
      await ask(database.delete(rateLimits).where(eq(rateLimits.client, instance)));
    },
    /** Connections replace themselves. */
    reopen() {},
    async close() {
      closing.abort();
      await closeDatabase(database, 1);
    },
  };
}

function mayNotCount({ message }: Error): UserError {
  return new UserError(
    `DATABASE_URL: the rate limit can't be counted: ${message}; grant its role what docs/operations.md lists, or set REDIS_URL`,
  );
}

const latest = sql`${rateLimits.requests}[cardinality(${rateLimits.requests})]`;

/** Whether the latest request is this close to now. One in the future is from before the clock was set back. */
const isWithin = (milliseconds: number) => {
  const interval = sql.raw(`interval '${milliseconds} milliseconds'`);
  return sql`${latest} BETWEEN now() - ${interval} AND now() + ${interval}`;
};

const isAlive = isWithin(GONE_AFTER_MS);
const isIdle = sql`NOT (${isWithin(60_000)})`;

/**
 * Counts for each of `clients` as many requests as `numbers` says, unless it has `points` in the last second. The clock is
 * read under the lock of the client's row, so its requests are in order. Those in the future are from before the clock was
 * set back; they count as now, or the client would be blocked for as long as the step. Without OFFSET 0, the clock and the
 * log would be read again wherever they are named.
 */
function prepareCount(database: Database, points: number) {
  const limit = sql.raw(String(points));
  const { client, requests, counted } = rateLimits;
  const log = database.$with('log', { client, requests, counted }).as(sql`
    INSERT INTO ${rateLimits} AS log (client, requests, counted)
    SELECT client, array_fill(clock_timestamp(), ARRAY[fitting]), fitting
    FROM unnest(${sql.placeholder('clients')}::text[], ${sql.placeholder('numbers')}::integer[]) AS wanted (client, number),
      LATERAL (SELECT least(number, ${limit}) AS fitting) AS empty_log
    ON CONFLICT (client) DO UPDATE SET (requests, counted) = (
      SELECT recent || array_fill(moment, ARRAY[fitting]), fitting
      FROM
        (SELECT clock_timestamp() AS moment OFFSET 0) AS clock,
        LATERAL (SELECT ARRAY(
          SELECT least(request, moment) FROM unnest(log.requests) AS request
          WHERE request > moment - interval '1 second'
          ORDER BY request
        ) AS recent OFFSET 0) AS log_window,
        LATERAL (SELECT greatest(0, least(excluded.counted, ${limit} - cardinality(recent))) AS fitting) AS room
    )
    RETURNING client, requests, counted`);
  return database
    .with(log)
    .select({
      client: log.client,
      counted: log.counted,
      remaining: sql<number>`${limit} - cardinality(${log.requests})`,
      /** Until the oldest request leaves the window. */
      waitMs: sql<number>`extract(epoch FROM ${log.requests}[1] + interval '1 second' - clock_timestamp())::float8 * 1000`,
      isKnown: sql<boolean>`EXISTS (
        SELECT FROM ${rateLimits} WHERE ${rateLimits.client} = ${sql.placeholder('instance')} AND ${isAlive}
      )`,
    })
    .from(log)
    .prepare('count requests');
}

/** Records a heartbeat of an instance. Its row is like a client's, whose latest request is the heartbeat. */
function prepareRegister(database: Database) {
  const beat = database
    .insert(rateLimits)
    .values({ client: sql.placeholder('instance'), requests: sql`ARRAY[clock_timestamp()]`, counted: 1 })
    .onConflictDoUpdate({ target: rateLimits.client, set: { requests: sql`excluded.requests` } })
    .returning({ client: rateLimits.client });
  // The parts of a statement see the table as it was before.
  return database
    .with(database.$with('beat').as(beat))
    .select({
      isNew: sql<boolean>`count(*) FILTER (WHERE ${rateLimits.client} = ${sql.placeholder('instance')}) = 0`,
      instances: sql<number>`1 + count(*) FILTER (WHERE ${rateLimits.client} <> ${sql.placeholder('instance')})::integer`,
    })
    .from(rateLimits)
    .where(sql`${rateLimits.client} LIKE 'instance:%' AND ${isAlive}`)
    .prepare('register instance');
}

/**
 * Removes the clients whose latest request is more than a minute away, among the next few after `client` in their order.
 * Resolves to the last of these few; null if there were none. Skips locked rows: while it waited for one, requests would
 * wait for the rows that it has locked.
 */
async function sweepAfter(database: Database, client: string): Promise<string | null> {
  const [batch] = await database.execute<{ last: string | null }>(sql`
    WITH batch AS MATERIALIZED (
      SELECT client, ${isIdle} AS is_idle FROM ${rateLimits} WHERE client > ${client} ORDER BY client LIMIT ${SWEEP_BATCH}
    ), idle AS (
      SELECT client FROM ${rateLimits} WHERE client IN (SELECT client FROM batch WHERE is_idle) AND ${isIdle}
      FOR UPDATE SKIP LOCKED
    ), gone AS (
      DELETE FROM ${rateLimits} WHERE client IN (SELECT client FROM idle)
    )
    SELECT max(client) AS last FROM batch`);
  return batch?.last ?? null;
}
