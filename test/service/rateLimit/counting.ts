import type { LimitStore } from '../../../src/service/rateLimit/limiter.js';

/** Counts a request in a store with a limit of 10; returns whether it is allowed, what remains and how long to wait. */
export async function count(store: LimitStore, client: string) {
  const { consumed, waitMs } = await store.consume(client);
  return { allowed: consumed <= 10, remaining: Math.max(0, 10 - consumed), waitMs };
}
