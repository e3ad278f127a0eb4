/**
 * The rate limit's store in PostgreSQL: the times of each client's counted requests in an unlogged table, tested and
 * extended by the function `count_request` (drizzle/0001_derived.sql) under the lock of the client's row and on the
 * database's clock. Requests that come together are counted by one statement.
 */
import { eq, inArray, sql } from 'drizzle-orm';
import { RateLimiterPostgres, RateLimiterRes } from 'rate-limiter-flexible';
import { closeDatabase, type Database, openDatabase } from './database.js';
import { type LimitStore, PATIENCE } from './rateLimiter.js';
import { rateLimits } from './schema.js';

/** Milliseconds between two sweeps of clients that send nothing any more. */
const SWEEP = 60_000;
const CONNECTIONS = 3;

/** What `count_request` answers. */
interface LogState {
  allowed: boolean;
  counted: number;
  /** Until the oldest counted request leaves the window, in milliseconds. */
  wait: number;
}

/** A request to be counted with the next statement. */
interface Waiting {
  client: string;
  resolve(state: LogState): void;
  reject(error: unknown): void;
}

export class SlidingLogPostgres extends RateLimiterPostgres implements LimitStore {
  readonly kind = 'postgresql';
  readonly #count: ReturnType<typeof prepareCount>;
  #waiting: Waiting[] = [];
  readonly #countInstances: ReturnType<typeof prepareCountInstances>;
  readonly #database: Database;
  readonly #sweeper: NodeJS.Timeout;

  constructor(url: string, points: number, window: number) {
    // Connections of its own: the list's queries must not wait behind a client's locked row, nor the other way round.
    const database = openDatabase(url, { connections: CONNECTIONS, statementTimeout: PATIENCE });
    super({
      storeClient: database,
      storeType: 'client',
      tableCreated: true,
      clearExpiredByTimeout: false,
      keyPrefix: '',
      points,
      duration: window,
      // A client over its limit is refused from memory until its oldest request leaves the window: asking the store
      // could not answer otherwise before.
      inMemoryBlockOnConsumed: points + 1,
    });
    this.#database = database;
    this.#count = prepareCount(database, points);
    this.#countInstances = prepareCountInstances(database);
    this.#sweeper = setInterval(() => this.#forgetIdleClients().catch(() => {}), SWEEP).unref();
  }

  /** Called by the library to count one request. Those that come in one turn of the event loop go together. */
  _upsert(client: string): Promise<LogState> {
    return new Promise((resolve, reject) => {
      const isFirst = this.#waiting.push({ client, resolve, reject }) === 1;
      if (isFirst) setImmediate(() => this.#countWaiting());
    });
  }

  async #countWaiting(): Promise<void> {
    // In the same order on all instances, so that no two wait for each other's rows.
    const waiting = this.#waiting.sort((a, b) => (a.client < b.client ? -1 : 1));
    this.#waiting = [];
    // One of the connections may be dead while the others answer: an answer that is late has them looked into.
    const late = setTimeout(() => this.reopen(), PATIENCE);
    const sent = performance.now();
    try {
      const states = await this.#count.execute({ clients: waiting.map(({ client }) => client) });
      // The wait began when the database answered, not when we heard of it.
      const since = performance.now() - sent;
      for (const { place, ...state } of states)
        waiting[place - 1]?.resolve({ ...state, wait: Math.max(0, state.wait - since) });
    } catch (error) {
      for (const { reject } of waiting) reject(error);
    } finally {
      clearTimeout(late);
    }
  }

  /** Called by the library to read what `_upsert` returned. */
  _getRateLimiterRes(_key: string, _points: number, { allowed, counted, wait }: LogState): RateLimiterRes {
    return new RateLimiterRes(Math.max(0, this.points - counted), wait, allowed ? counted : this.points + 1);
  }

  count(client: string): Promise<RateLimiterRes> {
    return this.consume(client);
  }

  /** An instance is a client of its own here: its latest request is its sign of life. */
  async countInstances(instance: string, patience: number): Promise<number> {
    await this.#count.execute({ clients: [`instance:${instance}`] });
    const [row] = await this.#countInstances.execute({ patience });
    return row?.instances ?? 1;
  }

  async leave(instance: string): Promise<void> {
    await this.#database.delete(rateLimits).where(eq(rateLimits.client, `instance:${instance}`));
  }

  /** Losing a connection of the pool says nothing about the store; a request that fails does. */
  onLoss(): void {}

  reopen(): void {
    this.#database.renew({ waiting: CONNECTIONS, isSilent: true }).catch(() => {});
  }

  async close(): Promise<void> {
    clearInterval(this.#sweeper);
    await closeDatabase(this.#database, 1);
  }

  async #forgetIdleClients(): Promise<void> {
    // It waits for no row, since others may wait for one that it holds.
    const idle = this.#database
      .select({ client: rateLimits.client })
      .from(rateLimits)
      .where(sql`${latest} < now() - interval '1 minute'`)
      .for('update', { skipLocked: true });
    await this.#database.delete(rateLimits).where(inArray(rateLimits.client, idle));
  }
}

const latest = sql`${rateLimits.requests}[cardinality(${rateLimits.requests})]`;

/** Counts a request of each of `clients`, in their order. */
function prepareCount(database: Database, points: number) {
  return database
    .select({
      place: sql<number>`place::integer`,
      allowed: sql<boolean>`allowed`,
      counted: sql<number>`counted`,
      wait: sql<number>`wait`,
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
        AND ${latest} > clock_timestamp() - ${sql.placeholder('patience')}::float8 * interval '1 millisecond'`,
    )
    .prepare('count instances');
}
