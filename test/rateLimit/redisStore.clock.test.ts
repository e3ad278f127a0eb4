import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openLog } from '../../src/log.js';
import { createMetrics } from '../../src/metrics.js';
import { type LimitStore, RateLimiter, StoreForgot } from '../../src/rateLimit/limiter.js';
import { openRedisStore } from '../../src/rateLimit/redisStore.js';
import { hasRedis, startRedis, type TestRedis } from '../redis.js';
import { until } from '../until.js';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;
const MEGABYTE = 1024 * 1024;

let server: TestRedis;
let redis: Redis;
let store: LimitStore;
beforeAll(async () => {
  if (!hasRedis) return;
  server = await startRedis();
  redis = new Redis(server.url);
  store = openRedisStore(server.url, 10);
  await store.register();
});
afterAll(async () => {
  await store?.close();
  redis?.disconnect();
  await server?.kill();
});

describe.skipIf(!hasRedis)('after the clock of Redis was set back', () => {
  const tenMinutes = 600_000;

  it('a client that has used up its second waits for a second at most, not for the step', async () => {
    const ahead = (Date.now() + tenMinutes) * 1000;
    await redis.rpush('branded-phone-numbers:limit:step', ...Array(10).fill(ahead));
    const { allowed, remaining, waitMs } = await store.count('step');
    expect([allowed, remaining]).toEqual([false, 0]);
    expect(waitMs).toBeGreaterThan(900);
    expect(waitMs).toBeLessThanOrEqual(1000);
    await new Promise((resolve) => setTimeout(resolve, 1010));
    expect((await store.count('step')).remaining).toBe(9);
  });

  it('an instance that ended before counts no more', async () => {
    await redis.zadd('branded-phone-numbers:instances', Date.now() + tenMinutes, 'gone');
    expect(await store.register()).toMatchObject({ instances: 1 });
  });
});

describe.skipIf(!hasRedis)('beside an instance of another version', () => {
  it('what that one has counted counts, and so does the instance', async () => {
    const others = Array.from({ length: 9 }, () => Date.now() * 1000);
    await redis.rpush('branded-phone-numbers:limit:shared', ...others);
    expect(await store.count('shared')).toMatchObject({ allowed: true, remaining: 0 });
    expect(await store.count('shared')).toMatchObject({ allowed: false });
    await redis.zadd('branded-phone-numbers:instances', Date.now(), 'another');
    expect(await store.register()).toMatchObject({ instances: 2 });
    await redis.zrem('branded-phone-numbers:instances', 'another');
  });
});

describe.skipIf(!hasRedis)('a store that came back empty', () => {
  it('counts nothing for an instance until that has registered again, and says so once', async () => {
    await redis.flushall();
    await expect(store.count('forgotten')).rejects.toThrow(StoreForgot);
    expect(await store.register()).toEqual({ instances: 1, isNew: true });
    expect(await store.register()).toEqual({ instances: 1, isNew: false });
    expect((await store.count('forgotten')).allowed).toBe(true);
  });
});

describe.skipIf(!hasRedis)('sixty thousand clients', () => {
  it('take little memory in the instance and in Redis, which is given back', async () => {
    const limiter = new RateLimiter(
      openRedisStore(server.url, 10),
      10,
      openLog({ LOG_LEVEL: 'silent' }),
      createMetrics(1),
    );
    await limiter.warmUp();
    const usedByRedis = async () => Number(/used_memory:(\d+)/.exec(await redis.info('memory'))?.[1]);
    collectGarbage();
    const [heap, inRedis] = [process.memoryUsage().heapUsed, await usedByRedis()];
    for (let i = 0; i < 60_000; i += 250) {
      await Promise.all(Array.from({ length: 250 }, (_, j) => limiter.decide(`address:2001:db8::${i + j}`)));
    }
    collectGarbage();
    expect(process.memoryUsage().heapUsed - heap).toBeLessThan(50 * MEGABYTE);
    expect((await usedByRedis()) - inRedis).toBeLessThan(50 * MEGABYTE);
    await until(async () => (await redis.dbsize()) <= 5, 'Redis has forgotten them', 30_000);
    await limiter.close();
  });
});
