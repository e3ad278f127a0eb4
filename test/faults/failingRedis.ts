/** A Redis behind a proxy that can fail as networks do. */
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import { startRedis, type TestRedis } from '../support/redis.js';
import { openToxicProxy, type ToxicProxy } from '../support/toxicProxy.js';

export let redis: TestRedis;
export let proxy: ToxicProxy;

/** A Redis for all tests of a suite, empty for each of them, and for each a proxy to it. */
export function useFailingRedis(): void {
  beforeAll(async () => {
    redis = await startRedis();
  });
  beforeEach(async () => {
    proxy = await openToxicProxy(redis.port);
    await redis.clear();
  });
  afterEach(() => proxy.close());
  afterAll(() => redis.kill());
}
