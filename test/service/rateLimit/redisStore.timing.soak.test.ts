import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Redis } from 'ioredis';
import { describe, expect, it } from 'vitest';
import { openLog } from '../../../src/log.js';
import { createMetrics } from '../../../src/metrics.js';
import { RateLimiter } from '../../../src/service/rateLimit/limiter.js';
import { openRedisStore } from '../../../src/service/rateLimit/redisStore.js';
import { hasRedis, startRedis } from '../../support/redis.js';
import { until } from '../../support/until.js';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;
const MEGABYTE = 1024 * 1024;

describe.skipIf(!hasRedis)('the store in Redis', () => {
  it('uses little memory for 60,000 clients in the instance and in Redis, and frees it in Redis', async () => {
    const server = await startRedis();
    const redis = new Redis(server.url);
    const log = openLog({ LOG_LEVEL: 'silent' });
    const limiter = new RateLimiter(openRedisStore(server.url, 10), 10, log, createMetrics(1));
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
    await until(async () => (await redis.dbsize()) === 0, 'Redis has removed all clients', 30_000);
    await limiter.close();
    redis.disconnect();
    await server.kill();
  });
});
