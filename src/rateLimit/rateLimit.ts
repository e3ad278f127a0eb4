/**
 * The rate limit: a number of requests in any one second for each client, over all instances. rate-limiter-flexible
 * counts in fixed windows, which let almost twice as many through around an edge; the stores here keep the times of the
 * counted requests instead (a sliding log). They use the store's clock, so the instances' clocks need not agree.
 */
import type { Config } from '../config.js';
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import { type Headers, headersOf, refusalOf } from './headers.js';
import { RateLimiter } from './limiter.js';
import { openPostgresStore } from './postgresStore.js';
import { openRedisStore } from './redisStore.js';

const WINDOW_SECONDS = 1;

export interface RateLimit {
  /**
   * Counts a request of `client`; resolves to the limit's headers where it may pass.
   * @throws the problem of a 429 where it may not
   */
  count(client: string): Promise<Headers>;
  /** Opens the connections to the store, so that the first requests are as quick as the later ones. */
  warmUp(): Promise<void>;
  close(): Promise<void>;
}

/** The limit of the settings, kept in Redis where there is one, else in PostgreSQL; 0 a second turns it off. */
export function createRateLimit(
  { RATE_LIMIT_PER_SECOND: points, REDIS_URL }: Pick<Config, 'RATE_LIMIT_PER_SECOND' | 'REDIS_URL'>,
  databaseUrl: string,
  log: Log,
  metrics: Metrics,
): RateLimit {
  if (points === 0) return unlimited;
  const store = REDIS_URL ? openRedisStore(REDIS_URL, points, WINDOW_SECONDS) : openPostgresStore(databaseUrl, points);
  const limiter = new RateLimiter(store, points, WINDOW_SECONDS, log, metrics);

  return {
    async count(client) {
      const decision = await limiter.decide(client);
      if (!decision.allowed) throw refusalOf(decision, points, WINDOW_SECONDS);
      return headersOf(decision, points, WINDOW_SECONDS);
    },
    warmUp: () => limiter.warmUp(),
    close: () => limiter.close(),
  };
}

const unlimited: RateLimit = {
  count: async () => ({}),
  async warmUp() {},
  async close() {},
};
