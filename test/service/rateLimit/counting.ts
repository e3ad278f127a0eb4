import { RateLimiterRes } from 'rate-limiter-flexible';
import type { LimitStore } from '../../../src/service/rateLimit/limiter.js';

/** Counts a request in a store with a limit of 10; returns whether it is allowed, what remains and how long to wait. */
export async function count(store: LimitStore, client: string) {
  const result = await store.consume(client).catch((reason) => {
    if (reason instanceof RateLimiterRes) return reason;
    throw reason;
  });
  const { consumedPoints, remainingPoints: remaining, msBeforeNext: waitMs } = result;
  return { allowed: consumedPoints <= 10, remaining, waitMs };
}
