import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openLog } from '../../../src/log.js';
import { createMetrics } from '../../../src/metrics.js';
import { type LimitStore, RateLimiter } from '../../../src/service/rateLimit/limiter.js';
import { openRedisStore } from '../../../src/service/rateLimit/redisStore.js';
import { hasRedis, startRedis, type TestRedis } from '../../support/redis.js';
import { until } from '../../support/until.js';
import { count, expectToWaitASecond } from './counting.js';

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
  await until(() => store.consume('first', performance.now()).then(Boolean, () => false));
});
afterAll(async () => {
  await store?.close();
  redis?.disconnect();
  await server?.kill();
});

describe.skipIf(!hasRedis)('the store in Redis', () => {
  it('blocks a client for at most a second after the clock of Redis was set back', async () => {
    const ahead = (Date.now() + 600_000) * 1000;
    await redis.rpush('branded-phone-numbers:limit:step', ...Array(10).fill(ahead));
    await expectToWaitASecond(store, 'step');
  });

  it('includes what an instance of another version has counted', async () => {
    await redis.rpush('branded-phone-numbers:limit:shared', ...Array(9).fill(Date.now() * 1000));
    expect(await count(store, 'shared')).toMatchObject({ allowed: true, remaining: 0 });
    expect(await count(store, 'shared')).toMatchObject({ allowed: false });
  });

  it('opens a new connection and soon counts again if Redis hangs', async () => {
    server.pause();
    const failing = until(
      () => store.consume('hung', performance.now()).then(() => false, Boolean),
      'the connection is given up',
      2000,
    );
    await failing.finally(() => server.resume());
    await until(() => count(store, 'after it hung').then(Boolean, () => false), 'it counts', 1500);
  });
});

describe.skipIf(!hasRedis)('the store in Redis with sixty thousand clients', () => {
  it('takes little memory in the instance and in Redis, and frees it', async () => {
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
      await Promise.all(Array.from({ length: 250 }, (_, j) => limiter.count(`address:2001:db8::${i + j}`).decision));
    }
    collectGarbage();
    expect(process.memoryUsage().heapUsed - heap).toBeLessThan(50 * MEGABYTE);
    expect((await usedByRedis()) - inRedis).toBeLessThan(50 * MEGABYTE);
    await until(async () => (await redis.dbsize()) <= 5, 'Redis has forgotten them', 30_000);
    await limiter.close();
  });
});
