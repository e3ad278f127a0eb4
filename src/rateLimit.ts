/**
 * The rate limit: so many requests in any one second for each client, over all instances. rate-limiter-flexible counts
 * in fixed windows, which let almost twice as many through around an edge; the store here keeps the times of the counted
 * requests instead (a sliding log), through the library's own seam for stores. Time is the database's, so instances need
 * not agree on theirs.
 */
import { sql } from 'drizzle-orm';
import type { RequestHandler } from 'express';
import { RateLimiterPostgres, RateLimiterRes } from 'rate-limiter-flexible';
import type { Client } from './client.js';
import type { Database } from './database.js';
import { problem } from './problem.js';
import { rateLimits } from './schema.js';

/** Seconds that the limit speaks of. */
const WINDOW = 1;

export interface RateLimit {
  /** Counts a request and sets the limit's headers; refuses it with 429 when the client has used up its second. */
  limit: RequestHandler;
  close(): void;
}

/** A limit of `perSecond` requests, kept in PostgreSQL; 0 turns it off. */
export function createRateLimit(database: Database, perSecond: number): RateLimit {
  if (perSecond === 0) return { limit: (_request, _response, next) => next(), close() {} };
  const store = new SlidingLog(database, perSecond);
  const sweeper = setInterval(() => store.forgetIdleClients().catch(() => {}), 60_000).unref();
  const policy = `"default";q=${perSecond};w=${WINDOW}`;
  return {
    async limit(_request, response, next) {
      const { id } = response.locals.client as Client;
      const { state, refused } = await store.consume(id).then(
        (result) => ({ state: result, refused: false }),
        (reason: unknown) => {
          if (reason instanceof RateLimiterRes) return { state: reason, refused: true };
          throw reason;
        },
      );
      const seconds = Math.max(1, Math.ceil(state.msBeforeNext / 1000));
      response.set('RateLimit-Policy', policy);
      response.set('RateLimit', `"default";r=${state.remainingPoints};t=${seconds}`);
      if (!refused) return next();
      const wait = `${seconds} second${seconds === 1 ? '' : 's'}`;
      throw problem('rate-limit-exceeded', `At most ${perSecond} requests in any one second. Try again in ${wait}.`, {
        headers: { 'Retry-After': String(seconds) },
      });
    },
    close: () => clearInterval(sweeper),
  };
}

/** What the statement below answers. */
interface LogState {
  allowed: boolean;
  counted: number;
  /** Until the oldest counted request leaves the window, in milliseconds. */
  wait: number;
}

class SlidingLog extends RateLimiterPostgres {
  readonly #consume: ReturnType<typeof prepareConsume>;
  readonly #database: Database;

  constructor(database: Database, points: number) {
    super({
      storeClient: database,
      storeType: 'client',
      tableCreated: true,
      clearExpiredByTimeout: false,
      keyPrefix: '',
      points,
      duration: WINDOW,
      // A client over its limit is refused from memory until its oldest request leaves the window: asking the store
      // could not answer otherwise before.
      inMemoryBlockOnConsumed: points + 1,
    });
    this.#database = database;
    this.#consume = prepareConsume(database, points);
  }

  /** Called by the library to count one request. */
  async _upsert(client: string): Promise<LogState> {
    const [state] = await this.#consume.execute({ client });
    if (!state) throw new Error('the rate limit store did not answer');
    return state;
  }

  /** Called by the library to read what `_upsert` returned. */
  _getRateLimiterRes(_key: string, _points: number, { allowed, counted, wait }: LogState): RateLimiterRes {
    return new RateLimiterRes(Math.max(0, this.points - counted), wait, allowed ? counted : this.points + 1);
  }

  async forgetIdleClients(): Promise<void> {
    await this.#database
      .delete(rateLimits)
      .where(sql`${rateLimits.requests}[cardinality(${rateLimits.requests})] < now() - interval '1 minute'`);
  }
}

function prepareConsume(database: Database, points: number) {
  return database
    .select({ allowed: sql<boolean>`allowed`, counted: sql<number>`counted`, wait: sql<number>`wait` })
    .from(sql`count_request(${sql.placeholder('client')}, ${sql.raw(String(points))})`)
    .prepare('count request');
}
