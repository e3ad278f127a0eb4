/**
 * The rate limit: so many requests in any one second for each client, over all instances. rate-limiter-flexible counts
 * in fixed windows, which let almost twice as many through around an edge; the stores here keep the times of the counted
 * requests instead (a sliding log), through the library's own seams. Time is the store's, so instances need not agree
 * on theirs.
 */
import type { ErrorRequestHandler, RequestHandler, Response } from 'express';
import type { Client } from './client.js';
import type { Config } from './config.js';
import type { Log } from './log.js';
import type { Metrics } from './metrics.js';
import { problem } from './problem.js';
import { type Decision, RateLimiter } from './rateLimiter.js';
import { SlidingLogPostgres } from './slidingLogPostgres.js';
import { SlidingLogRedis } from './slidingLogRedis.js';

/** Seconds that the limit speaks of. */
const WINDOW = 1;

/** The store takes a while to decide. The request is looked at meanwhile, and its page read, where that is safe. */
export interface RateLimit {
  /** Has the request counted; the decision is on its way. */
  begin: RequestHandler;
  /**
   * What `read` finds, once the limit has let the request pass, with the limit's headers set. Reads ahead of the
   * decision unless the client has used up its second as far as this instance knows, or was refused within it: so a
   * flood costs no more reads than the limit has requests.
   * @throws the problem of a 429, whatever became of the read
   */
  whenPassed<T>(response: Response, read: () => Promise<T>): Promise<T>;
  /** What else is wrong with a request is told only if the limit lets it pass. */
  goFirst: ErrorRequestHandler;
  /** Makes the first requests as quick as the later ones. */
  warmUp(): Promise<void>;
  close(): Promise<void>;
}

/** What `begin` leaves in `response.locals`. */
interface Counted {
  decision: Promise<Decision>;
  mayReadAhead: boolean;
}

/** The limit of the settings, kept in Redis where there is one, else in PostgreSQL; 0 a second turns it off. */
export function createRateLimit(
  { RATE_LIMIT_PER_SECOND: perSecond, REDIS_URL }: Pick<Config, 'RATE_LIMIT_PER_SECOND' | 'REDIS_URL'>,
  databaseUrl: string,
  log: Log,
  metrics: Metrics,
): RateLimit {
  if (perSecond === 0) return unlimited;
  const store = REDIS_URL
    ? new SlidingLogRedis(REDIS_URL, perSecond, WINDOW)
    : new SlidingLogPostgres(databaseUrl, perSecond, WINDOW);
  const limiter = new RateLimiter(store, perSecond, WINDOW, log, metrics);
  const policy = `"default";q=${perSecond};w=${WINDOW}`;

  /** Sets the limit's headers. @throws the problem of a 429 */
  async function pass(response: Response, decision: Promise<Decision>): Promise<void> {
    const { allowed, remaining, wait } = await decision;
    const seconds = Math.max(1, Math.ceil(wait / 1000));
    response.setHeader('RateLimit-Policy', policy);
    response.setHeader('RateLimit', `"default";r=${remaining};t=${seconds}`);
    if (allowed) return;
    const pause = `${seconds} second${seconds === 1 ? '' : 's'}`;
    throw problem('rate-limit-exceeded', `At most ${perSecond} requests in any one second. Try again in ${pause}.`, {
      headers: { 'Retry-After': String(seconds) },
    });
  }

  return {
    begin(_request, response, next) {
      const { id } = response.locals.client as Client;
      const mayReadAhead = limiter.isLikelyToPass(id);
      response.locals.counted = { decision: limiter.decide(id), mayReadAhead } satisfies Counted;
      next();
    },
    async whenPassed(response, read) {
      const { decision, mayReadAhead } = response.locals.counted as Counted;
      if (!mayReadAhead) {
        await pass(response, decision);
        return read();
      }
      const found = read();
      // Nobody may come to hear of its failure; and until it has ended, the request's place is taken.
      response.locals.reading = found.then(ended, ended);
      await pass(response, decision);
      return found;
    },
    async goFirst(error, _request, response, next) {
      const counted = response.locals.counted as Counted | undefined;
      if (counted) await pass(response, counted.decision);
      next(error);
    },
    warmUp: () => limiter.warmUp(),
    close: () => limiter.close(),
  };
}

const unlimited: RateLimit = {
  begin: (_request, _response, next) => next(),
  whenPassed: (_response, read) => read(),
  goFirst: (error, _request, _response, next) => next(error),
  async warmUp() {},
  async close() {},
};

function ended(): void {}
