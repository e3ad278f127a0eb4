/**
 * The rate limit's store in PostgreSQL: the times of each client's counted requests in an unlogged table, tested and
 * extended by the function `count_request` (drizzle/) under the lock of the client's row and on the database's clock.
 * Requests that come together are counted by one statement. The instances are registered in the same table, which a
 * crash of PostgreSQL empties, so an instance that is still registered knows that nothing was forgotten.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { eq, sql } from 'drizzle-orm';
import { ConfigError } from '../config.js';
import { type Database, openDatabase } from '../database/connect.js';
import { causeOf, codeOf, INSUFFICIENT_PRIVILEGE } from '../database/errors.js';
import { Generations } from '../database/generations.js';
import { rateLimits } from '../database/schema.js';
import { type Decision, GONE_AFTER_MS, type LimitStore, STORE_TIMEOUT_MS, StoreForgot } from './limiter.js';

/** Milliseconds between sweeps of clients that have stopped sending, and before a failed sweep goes on. */
const SWEEP_INTERVAL_MS = 60_000;
const SWEEP_RETRY_MS = 10_000;
/** The rows that one statement of a sweep looks at, so that none reaches its time limit, even with very many clients. */
const SWEEP_BATCH = 200;
/** A separate pool: the list's queries must not wait behind a client's locked row, nor the other way round. */
const CONNECTIONS = 3;
/** A busy machine may be late, though PostgreSQL cancels what takes longer than `STORE_TIMEOUT_MS`. */
const TIME_LIMIT_MS = 1000;

/** A request to be counted with the next statement. */
interface Waiting {
  client: string;
  resolve(decision: Decision): void;
  reject(reason: unknown): void;
}

/** Opens the store of a limit of `points` requests in any one second, on a migrated database. */
export function openPostgresStore(url: string, points: number, onSweepFailure: (reason: Error) => void): LimitStore {
  const open = (host: string) => {
    const database = openDatabase(host, { connections: CONNECTIONS, statementTimeout: STORE_TIMEOUT_MS });
    return { database, countAll: prepareCount(database, points), registerInstance: prepareRegister(database) };
  };
  const generations = new Generations(url, open, { timeLimitMs: TIME_LIMIT_MS });
  const instance = `instance:${randomUUID()}`;
  const closing = new AbortController();
  let waiting: Waiting[] = [];

  async function countWaiting(): Promise<void> {
    // In the same order on all instances, so that no two wait for each other's rows.
    const counted = waiting.sort((a, b) => (a.client < b.client ? -1 : 1));
    waiting = [];
    try {
      const clients = counted.map(({ client }) => client);
      for (const { place, isKnown, ...decision } of await ask(({ countAll }) =>
        countAll.execute({ clients, instance }),
      )) {
        const request = counted[place - 1];
        if (isKnown) request?.resolve(decision);
        else request?.reject(new StoreForgot());
      }
    } catch (error) {
      for (const { reject } of counted) reject(error);
    }
  }

  function ask<T>(question: (prepared: ReturnType<typeof open>) => PromiseLike<T>): Promise<T> {
    return generations.current.ask(question).catch((error) => {
      throw codeOf(causeOf(error)) === INSUFFICIENT_PRIVILEGE ? mayNotCount(causeOf(error)) : error;
    });
  }

  async function sweepUntilClosed(): Promise<void> {
    let last: string | null = null;
    while (!closing.signal.aborted) {
      let pause = SWEEP_INTERVAL_MS;
      try {
        do {
          const after: string = last ?? '';
          last = await ask(({ database }) => sweepAfter(database, after));
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
        const isFirst = waiting.push({ client, resolve, reject }) === 1;
        if (isFirst) setImmediate(countWaiting);
      });
    },
    async register() {
      const [row = { instances: 1, isNew: true }] = await ask(({ registerInstance }) =>
        registerInstance.execute({ instance }),
      );
      return row;
    },
    async leave() {
      await ask(({ database }) => database.delete(rateLimits).where(eq(rateLimits.client, instance)));
    },
    /** Generations replace themselves. */
    reopen() {},
    async close() {
      closing.abort();
      await generations.close(1000);
    },
  };
}

function mayNotCount({ message }: Error): ConfigError {
  return new ConfigError(
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

/** Counts a request of each of `clients`, in their order. */
function prepareCount(database: Database, points: number) {
  return database
    .select({
      place: sql<number>`place::integer`,
      allowed: sql<boolean>`allowed`,
      remaining: sql<number>`${sql.raw(String(points))} - counted`,
      waitMs: sql<number>`wait`,
      isKnown: sql<boolean>`EXISTS (
        SELECT FROM ${rateLimits} WHERE ${rateLimits.client} = ${sql.placeholder('instance')} AND ${isAlive}
      )`,
    })
    .from(sql`unnest(${sql.placeholder('clients')}::text[]) WITH ORDINALITY AS wanted (client, place)`)
    .crossJoin(sql`LATERAL count_request(wanted.client, ${sql.raw(String(points))})`)
    .prepare('count requests');
}

/** Records a heartbeat of an instance. Its row is like a client's, whose latest request is the heartbeat. */
function prepareRegister(database: Database) {
  const beat = database
    .insert(rateLimits)
    .values({ client: sql.placeholder('instance'), requests: sql`ARRAY[clock_timestamp()]`, allowed: true })
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
