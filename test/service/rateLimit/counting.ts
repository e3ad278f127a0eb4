/** What both stores promise of a request that they count. */
import { setTimeout as sleep } from 'node:timers/promises';
import { RateLimiterRes } from 'rate-limiter-flexible';
import { expect } from 'vitest';
import type { LimitStore } from '../../../src/service/rateLimit/limiter.js';

/** Counts a request in a store with a limit of 10: whether it passes, what is left, and how long to wait. */
export async function count(store: LimitStore, client: string, came = performance.now()) {
  const result = await store.consume(client, came).catch((reason) => {
    if (reason instanceof RateLimiterRes) return reason;
    throw reason;
  });
  const { consumedPoints, remainingPoints: remaining, msBeforeNext: waitMs } = result;
  return { allowed: consumedPoints <= 10, remaining, waitMs };
}

/** For a client whose ten requests are ten minutes ahead, since the store's clock was set back meanwhile. */
export async function expectToWaitASecond(store: LimitStore, client: string): Promise<void> {
  const { allowed, remaining, waitMs } = await count(store, client);
  expect([allowed, remaining]).toEqual([false, 0]);
  expect(waitMs).toBeGreaterThan(900);
  expect(waitMs).toBeLessThanOrEqual(1000);
  await sleep(1010);
  expect(await count(store, client)).toMatchObject({ allowed: true, remaining: 9 });
}
