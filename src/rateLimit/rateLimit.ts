/**
 * The rate limit: a number of requests in any one second for each client, over all instances. The stores keep the times
 * of the counted requests (a sliding log), since a fixed window would let almost twice as many through around its edge.
 * They use the store's clock, so the instances' clocks need not agree.
 */
import type { Config } from '../config.js';
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import { type ProblemError, problem } from '../problem/problem.js';
import { type Count, type Decision, RateLimiter } from './limiter.js';
import { openPostgresStore } from './postgresStore.js';
import { openRedisStore } from './redisStore.js';
import { WINDOW_MS } from './slidingLog.js';

/** Header fields by their names. */
type Headers = Readonly<Record<string, string>>;

export interface RateLimit {
  /** Counts a request of `client`. The decision never rejects. */
  count(client: string): Count;
  /** Returns the limit's headers for a response; without a decision, none is left for a second. */
  headersOf(decision?: Decision): Headers;
  /** Returns the problem of a 429 for a request that was refused. */
  refusalOf(decision: Decision): ProblemError;
  /**
   * Opens the connections to the store, so that the first requests are as fast as the later ones.
   * @throws {UserError} if the failure is permanent (wrong password, missing privilege)
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
    count: (client) => limiter.count(client),
    headersOf({ remaining, waitMs } = { allowed: false, remaining: 0, waitMs: WINDOW_MS }) {
      return {
        'RateLimit-Policy': `"default";q=${points};w=${WINDOW_MS / 1000}`,
        RateLimit: `"default";r=${remaining};t=${wholeSeconds(waitMs)}`,
      };
    },
    refusalOf({ waitMs }) {
      const seconds = wholeSeconds(waitMs);
      const pause = `${seconds} second${seconds === 1 ? '' : 's'}`;
      return problem('rate-limit-exceeded', `At most ${points} requests in any one second. Try again in ${pause}.`, {
        headers: { 'Retry-After': String(seconds) },
      });
    },
    async warmUp() {
      await limiter.warmUp();
      store.startSweeping?.();
    },
    close: () => limiter.close(),
  };
}

const ALLOWED: Decision = { allowed: true, remaining: Number.POSITIVE_INFINITY, waitMs: 0 };

const unlimited: RateLimit = {
  count: () => ({ isProbable: true, decision: Promise.resolve(ALLOWED) }),
  headersOf: () => ({}),
  refusalOf() {
    throw new Error('without a limit, no request is refused');
  },
  async warmUp() {},
  async close() {},
};

/** Rounded up, so that a client that waits that long is let through. */
function wholeSeconds(milliseconds: number): number {
  return Math.max(1, Math.ceil(milliseconds / 1000));
}
