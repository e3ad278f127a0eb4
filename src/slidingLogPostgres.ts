/**
 * The rate limit's store in PostgreSQL: the times of each client's counted requests in an unlogged table, tested and
 * extended by the function `count_request` (drizzle/0001_derived.sql) under the lock of the client's row and on the
 * database's clock.
 */
import { eq, sql } from 'drizzle-orm';
import { RateLimiterPostgres, RateLimiterRes } from 'rate-limiter-flexible';
import { closeDatabase, type Database, openDatabase } from './database.js';
import { type LimitStore, PATIENCE } from './rateLimiter.js';
import { rateLimits } from './schema.js';

/** Milliseconds between two sweeps of clients that send nothing any more. */
const SWEEP = 60_000;
const CONNECTIONS = 3;

/** What `count_request` answers, and when it was asked. */
interface LogState {
  allowed: boolean;
  counted: number;
  /** Until the oldest counted request leaves the window, in milliseconds. */
  wait: number;
}

export class SlidingLogPostgres extends RateLimiterPostgres implements LimitStore {
  readonly kind = 'postgresql';
  readonly #count: ReturnType<typeof prepareCount>;
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

  /** Called by the library to count one request. The wait began when the database answered, not when we heard of it. */
  async _upsert(client: string): Promise<LogState> {
    const sent = performance.now();
    const [state] = await this.#count.execute({ client });
    if (!state) throw new Error('the rate limit store did not answer');
    return { ...state, wait: Math.max(0, state.wait - (performance.now() - sent)) };
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
    await this.#count.execute({ client: `instance:${instance}` });
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
    await this.#database.delete(rateLimits).where(sql`${latest} < now() - interval '1 minute'`);
  }
}

const latest = sql`${rateLimits.requests}[cardinality(${rateLimits.requests})]`;

function prepareCount(database: Database, points: number) {
  return database
    .select({ allowed: sql<boolean>`allowed`, counted: sql<number>`counted`, wait: sql<number>`wait` })
    .from(sql`count_request(${sql.placeholder('client')}, ${sql.raw(String(points))})`)
    .prepare('count request');
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
