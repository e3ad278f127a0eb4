/**
 * The rate limit: a number of requests in any one second for each client, over all instances. The stores keep the times
 * of the counted requests (a sliding log), since a fixed window would let almost twice as many through around its edge.
 * They use the store's clock, so the instances' clocks need not agree.
 */
import type { Config } from '../config.js';
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import { problem } from '../problem/problem.js';
import { type Decision, RateLimiter, WINDOW_MS } from './limiter.js';
import { openPostgresStore } from './postgresStore.js';
import { openRedisStore } from './redisStore.js';

/** Header fields by their names. */
type Headers = Readonly<Record<string, string>>;

export interface RateLimit {
  /** Counts a request of `client`. Resolves to the limit's headers; rejects with the problem of a 429 where it may not pass. */
  count(client: string): Promise<Headers>;
  /** The limit's headers for an answer without a count: none is left for a second. */
  uncounted: Headers;
  /**
   * Opens the connections to the store, so that the first requests are as fast as the later ones.
   * @throws {UserError} if the store refuses, and waiting does not help
   */
  warmUp(): Promise<void>;
  close(): Promise<void>;
}

/** The limit of the settings, kept in Redis if there is one, otherwise in PostgreSQL; 0 a second turns it off. */
export function createRateLimit(
  { RATE_LIMIT_PER_SECOND: points, REDIS_URL }: Pick<Config, 'RATE_LIMIT_PER_SECOND' | 'REDIS_URL'>,
  databaseUrl: string,
  log: Log,
  metrics: Metrics,
): RateLimit {
  if (points === 0) return unlimited;
  const store = REDIS_URL
    ? openRedisStore(REDIS_URL, points)
    : openPostgresStore(databaseUrl, points, (reason) => {
        metrics.storeFailed();
        log.error({ reason: reason.message }, 'idle clients could not be removed from rate_limits');
      });
  const limiter = new RateLimiter(store, points, log, metrics);
  return {
    async count(client) {
      const decision = await limiter.decide(client);
      const headers = headersOf(decision, points);
      if (decision.allowed) return headers;
      const seconds = wholeSeconds(decision.waitMs);
      const pause = `${seconds} second${seconds === 1 ? '' : 's'}`;
      throw problem('rate-limit-exceeded', `At most ${points} requests in any one second. Try again in ${pause}.`, {
        headers: { ...headers, 'Retry-After': String(seconds) },
      });
    },
    uncounted: headersOf({ allowed: false, remaining: 0, waitMs: WINDOW_MS }, points),
    async warmUp() {
      await limiter.warmUp();
      store.startSweeping?.();
    },
    close: () => limiter.close(),
  };
}

const unlimited: RateLimit = {
  count: async () => ({}),
  uncounted: {},
  async warmUp() {},
  async close() {},
};

/** The headers of draft-ietf-httpapi-ratelimit-headers for a limit of `points` requests in a window. */
function headersOf({ remaining, waitMs }: Decision, points: number): Headers {
  return {
    'RateLimit-Policy': `"default";q=${points};w=${WINDOW_MS / 1000}`,
    RateLimit: `"default";r=${remaining};t=${wholeSeconds(waitMs)}`,
  };
}

/** Rounded up, so that a client that waits that long is let through. */
function wholeSeconds(milliseconds: number): number {
  return Math.max(1, Math.ceil(milliseconds / 1000));
}
