import { Redis } from 'ioredis';
import type { RateLimiterRes } from 'rate-limiter-flexible';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { LimitStore } from '../../src/rateLimit/limiter.js';
import { openRedisStore } from '../../src/rateLimit/redisStore.js';
import { hasRedis, startRedis, type TestRedis } from '../redis.js';

describe.skipIf(!hasRedis)('after the clock of Redis was set back', () => {
  const tenMinutes = 600_000;
  let server: TestRedis;
  let redis: Redis;
  let store: LimitStore;
  beforeAll(async () => {
    server = await startRedis();
    redis = new Redis(server.url);
    store = openRedisStore(server.url, 10, 1);
  });
  afterAll(async () => {
    await store.close();
    redis.disconnect();
    await server.kill();
  });

  it('a client that has used up its second waits for a second at most, not for the step', async () => {
    const ahead = (Date.now() + tenMinutes) * 1000;
    await redis.rpush('branded-phone-numbers:limit:step', ...Array(10).fill(ahead));
    const refusal = await store.consume('step').catch((reason: RateLimiterRes) => reason);
    expect([refusal.remainingPoints, refusal.consumedPoints]).toEqual([0, 11]);
    expect(refusal.msBeforeNext).toBeGreaterThan(900);
    expect(refusal.msBeforeNext).toBeLessThanOrEqual(1000);
    await new Promise((resolve) => setTimeout(resolve, 1010));
    expect((await store.consume('step')).remainingPoints).toBe(9);
  });

  it('an instance that ended before counts no more', async () => {
    await redis.zadd('branded-phone-numbers:instances', Date.now() + tenMinutes, 'gone');
    expect(await store.countInstances('living', 6000)).toBe(1);
  });
});
