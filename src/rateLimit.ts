/**
 * The rate limit: so many requests in any one second for each client, over all instances. rate-limiter-flexible counts
 * in fixed windows, which let almost twice as many through around an edge; the stores here keep the times of the counted
 * requests instead (a sliding log), through the library's own seams. Time is the store's, so instances need not agree
 * on theirs.
 */
import type { RequestHandler } from 'express';
import type { Client } from './client.js';
import type { Config } from './config.js';
import type { Log } from './log.js';
import type { Metrics } from './metrics.js';
import { problem } from './problem.js';
import { RateLimiter } from './rateLimiter.js';
import { SlidingLogPostgres } from './slidingLogPostgres.js';
import { SlidingLogRedis } from './slidingLogRedis.js';

/** Seconds that the limit speaks of. */
const WINDOW = 1;

export interface RateLimit {
  /** Counts a request and sets the limit's headers; refuses it with 429 when the client has used up its second. */
  limit: RequestHandler;
  /** Makes the first requests as quick as the later ones. */
  warmUp(): Promise<void>;
  close(): Promise<void>;
}

/** The limit of the settings, kept in Redis where there is one, else in PostgreSQL; 0 a second turns it off. */
export function createRateLimit(
  { RATE_LIMIT_PER_SECOND: perSecond, REDIS_URL }: Pick<Config, 'RATE_LIMIT_PER_SECOND' | 'REDIS_URL'>,
  databaseUrl: string,
  log: Log,
  metrics: Metrics,
): RateLimit {
  if (perSecond === 0) return { limit: (_request, _response, next) => next(), async warmUp() {}, async close() {} };
  const store = REDIS_URL
    ? new SlidingLogRedis(REDIS_URL, perSecond, WINDOW)
    : new SlidingLogPostgres(databaseUrl, perSecond, WINDOW);
  const limiter = new RateLimiter(store, perSecond, WINDOW, log, metrics);
  const policy = `"default";q=${perSecond};w=${WINDOW}`;
  return {
    async limit(_request, response, next) {
      const { id } = response.locals.client as Client;
      const { allowed, remaining, wait } = await limiter.decide(id);
      const seconds = Math.max(1, Math.ceil(wait / 1000));
      response.set('RateLimit-Policy', policy);
      response.set('RateLimit', `"default";r=${remaining};t=${seconds}`);
      if (allowed) return next();
      const pause = `${seconds} second${seconds === 1 ? '' : 's'}`;
      throw problem('rate-limit-exceeded', `At most ${perSecond} requests in any one second. Try again in ${pause}.`, {
        headers: { 'Retry-After': String(seconds) },
      });
    },
    warmUp: () => limiter.warmUp(),
    close: () => limiter.close(),
  };
}
