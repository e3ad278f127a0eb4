/**
 * The rate limit's store in PostgreSQL: the times of each client's counted requests in an unlogged table, tested and
 * extended by the function `count_request` (drizzle/0001_derived.sql) under the lock of the client's row and on the
 * database's clock. Requests that come together are counted by one statement.
 *
 * It uses rate-limiter-flexible's result type, but not RateLimiterPostgres, whose statement counts in fixed windows, one
 * request at a time, and can't be replaced through its public interface.
 */
import { eq, inArray, sql } from 'drizzle-orm';
import { RateLimiterRes } from 'rate-limiter-flexible';
import { closeDatabase, type Database, openDatabase } from '../database/connect.js';
import { rateLimits } from '../database/schema.js';
import { type LimitStore, STORE_TIMEOUT_MS } from './limiter.js';

/** Milliseconds between two sweeps of clients that have stopped sending. */
const SWEEP_INTERVAL_MS = 60_000;
/** A pool of its own: the list's queries must not wait behind a client's locked row, nor the other way round. */
const CONNECTIONS = 3;

/** A request to be counted with the next statement. */
interface Waiting {
  client: string;
  resolve(result: RateLimiterRes): void;
  reject(reason: unknown): void;
}

/** Opens the store of a limit of `points` requests in any one second, on a migrated database. */
export function openPostgresStore(url: string, points: number): LimitStore {
  const database = openDatabase(url, { connections: CONNECTIONS, statementTimeout: STORE_TIMEOUT_MS });
  const count = prepareCount(database, points);
  const countInstances = prepareCountInstances(database);
  const sweeper = setInterval(() => forgetIdleClients(database).catch(() => {}), SWEEP_INTERVAL_MS).unref();
  let waiting: Waiting[] = [];
  /** Statements that have not been answered in time. */
  let late = 0;

  async function countWaiting(): Promise<void> {
    // In the same order on all instances, so that no two wait for each other's rows.
    const counted = waiting.sort((a, b) => (a.client < b.client ? -1 : 1));
    waiting = [];
    try {
      const states = await watched(count.execute({ clients: counted.map(({ client }) => client) }));
      for (const { place, allowed, consumed, waitMs } of states) {
        const request = counted[place - 1];
        const result = new RateLimiterRes(points - consumed, waitMs, allowed ? consumed : points + 1);
        if (allowed) request?.resolve(result);
        else request?.reject(result);
      }
    } catch (error) {
      for (const { reject } of counted) reject(error);
    }
  }

  /** One of the connections may be dead while the others answer, so a late answer triggers a check of all. */
  async function watched<T>(answer: PromiseLike<T>): Promise<T> {
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      late++;
      reopen();
    }, STORE_TIMEOUT_MS);
    try {
      return await answer;
    } finally {
      clearTimeout(timer);
      if (isLate) late--;
    }
  }

  function reopen(): void {
    database.failover(() => ({ waiting: late, isSilent: late > 0 })).catch(() => {});
  }

  return {
    kind: 'postgresql',
    /** Requests that come in one turn of the event loop are counted together. */
    consume(client) {
      return new Promise((resolve, reject) => {
        const isFirst = waiting.push({ client, resolve, reject }) === 1;
        if (isFirst) setImmediate(countWaiting);
      });
    },
    /** An instance is a client of its own here: its latest request is its heartbeat. */
    async countInstances(instance, maxAgeMs) {
      await watched(count.execute({ clients: [`instance:${instance}`] }));
      const [row] = await watched(countInstances.execute({ maxAgeMs }));
      return row?.instances ?? 1;
    },
    async leave(instance) {
      await database.delete(rateLimits).where(eq(rateLimits.client, `instance:${instance}`));
    },
    /** Losing a connection of the pool says nothing about the store; a request that fails does. */
    onLoss() {},
    reopen,
    async close() {
      clearInterval(sweeper);
      await closeDatabase(database, 1);
    },
  };
}

async function forgetIdleClients(database: Database): Promise<void> {
  // Skips locked rows: while it waited for one, requests would wait for the rows that it has locked itself. Times in the
  // future are from before the clock was set back.
  const idle = database
    .select({ client: rateLimits.client })
    .from(rateLimits)
    .where(sql`${latest} NOT BETWEEN now() - interval '1 minute' AND now() + interval '1 minute'`)
    .for('update', { skipLocked: true });
  await database.delete(rateLimits).where(inArray(rateLimits.client, idle));
}

const latest = sql`${rateLimits.requests}[cardinality(${rateLimits.requests})]`;

/** Counts a request of each of `clients`, in their order. */
function prepareCount(database: Database, points: number) {
  return database
    .select({
      place: sql<number>`place::integer`,
      allowed: sql<boolean>`allowed`,
      consumed: sql<number>`counted`,
      waitMs: sql<number>`wait`,
    })
    .from(sql`unnest(${sql.placeholder('clients')}::text[]) WITH ORDINALITY AS wanted (client, place)`)
    .crossJoin(sql`LATERAL count_request(wanted.client, ${sql.raw(String(points))})`)
    .prepare('count requests');
}

function prepareCountInstances(database: Database) {
  return database
    .select({ instances: sql<number>`count(*)::integer` })
    .from(rateLimits)
    .where(
      sql`${rateLimits.client} LIKE 'instance:%'
        AND @ extract(epoch FROM ${latest} - clock_timestamp()) * 1000 < ${sql.placeholder('maxAgeMs')}::float8`,
    )
    .prepare('count instances');
}
