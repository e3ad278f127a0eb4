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

/** A request that is being counted. While the store decides, the rest of the request can be worked on. */
export interface Turn {
  /**
   * Whether its page may be read before the verdict: as far as this instance knows, the client has neither used up its
   * limit in the last second nor been refused in it. So a flood causes no more reads than the limit allows requests.
   */
  isLikelyToPass: boolean;
  /** The limit's headers, once the request may pass; rejects with the problem of a 429 where it may not. */
  verdict: Promise<Headers>;
}

export interface RateLimit {
  /** Counts a request of `client`. */
  count(client: string): Turn;
  /** Whether a request of `client` beside `pending` others would most likely pass, by what this instance knows. */
  isLikelyToPass(client: string, pending: number): boolean;
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

  async function decide(client: string): Promise<Headers> {
    const decision = await limiter.decide(client);
    if (!decision.allowed) throw refusalOf(decision, points, WINDOW_SECONDS);
    return headersOf(decision, points, WINDOW_SECONDS);
  }

  return {
    // In this order: a request that is being decided on counts among those of its client.
    count: (client) => ({ isLikelyToPass: limiter.isLikelyToPass(client), verdict: decide(client) }),
    isLikelyToPass: (client, pending) => limiter.isLikelyToPass(client, pending),
    warmUp: () => limiter.warmUp(),
    close: () => limiter.close(),
  };
}

const NO_HEADERS: Promise<Headers> = Promise.resolve({});

const unlimited: RateLimit = {
  count: () => ({ isLikelyToPass: true, verdict: NO_HEADERS }),
  isLikelyToPass: () => true,
  async warmUp() {},
  async close() {},
};
