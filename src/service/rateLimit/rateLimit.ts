/**
 * The rate limit: each client may send a number of requests in any one second, over all instances. limiter.ts decides;
 * the stores keep the times of counted requests by their own clocks, so the instances' clocks need not agree.
 */
import type { Config } from '../../config/config.js';
import type { Log } from '../../log.js';
import type { Metrics } from '../../metrics.js';
import { type Decision, RateLimiter } from './limiter.js';
import { openPostgresStore } from './postgresStore.js';
import { openRedisStore } from './redisStore.js';

export type RateLimit = Pick<RateLimiter, 'count' | 'headersOf' | 'refusal' | 'warmUp' | 'close'>;

/** Creates the rate limit, with a store in Redis if REDIS_URL is set, or else in PostgreSQL. */
export function createRateLimit(
  { RATE_LIMIT_PER_SECOND: points, REDIS_URL }: Pick<Config, 'RATE_LIMIT_PER_SECOND' | 'REDIS_URL'>,
  databaseUrl: string,
  log: Log,
  metrics: Metrics,
): RateLimit {
  if (points === 0) return unlimited;
  const onSweepFailure = ({ message: reason }: Error) =>
    log.error({ reason }, 'idle clients could not be removed from rate_limits');
  const store = REDIS_URL ? openRedisStore(REDIS_URL, points) : openPostgresStore(databaseUrl, points, onSweepFailure);
  return new RateLimiter(store, points, log, metrics);
}

const ALLOWED: Decision = { allowed: true, remaining: Number.POSITIVE_INFINITY };

const unlimited: RateLimit = {
  count: () => ({ isLikelyAllowed: true, decision: Promise.resolve(ALLOWED) }),
  headersOf: () => ({}),
  refusal() {
    throw new Error('without a limit, no request is rejected');
  },
  async warmUp() {},
  async close() {},
};
