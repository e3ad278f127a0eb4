/** Faults of the rate limit's store under a flood: dead, hung, slow, full, restarted; with several instances. */
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { connectTo } from '../connection.js';
import { mostInASecond } from '../mostInASecond.js';
import { hasRedis } from '../redis.js';
import { withinASecond } from '../until.js';
import { proxy, redis, useFailingRedis } from './failingRedis.js';
import {
  type Answer,
  ask,
  countOf,
  databaseUrl,
  decidesInTime,
  flood,
  instances,
  metric,
  newClient,
  start,
  statusesOf,
  together,
  useInstances,
} from './instances.js';
import { openToxicProxy } from './toxicProxy.js';

useInstances();

describe.skipIf(!hasRedis)('with Redis as the store', () => {
  useFailingRedis();

  it('no more than ten pass in any second of a burst and a stream, over three instances', async () => {
    await start(3, { REDIS_URL: redis.url });
    const client = newClient();
    const burst = await together(client, 50);
    const stream = await flood(client, 3);
    expect(mostInASecond([...burst, ...stream])).toBeLessThanOrEqual(10);
    expect(countOf(stream, 200)).toBeGreaterThanOrEqual(20);
  });

  it('a client is let through again as soon as its oldest request is a second old', async () => {
    await start(1, { REDIS_URL: redis.url });
    const client = newClient();
    const first = await ask(instances[0], client);
    await sleep(600);
    await together(client, 9);
    expect((await ask(instances[0], client)).status).toBe(429);
    await sleep(first.came + 1001 - performance.now());
    expect(countOf(await together(client, 2), 200)).toBe(1);
  });

  const faults: [string, () => Promise<unknown> | unknown, () => Promise<unknown> | unknown][] = [
    ['closes every connection', () => proxy.behave('refusing'), () => proxy.behave('passing')],
    ['hangs', () => proxy.behave('silent'), () => proxy.behave('passing')],
    ['is too slow', () => proxy.behave('slow'), () => proxy.behave('passing')],
    ['is stopped by its system', () => redis.pause(), () => redis.resume()],
    ['is killed and started empty', () => redis.kill(), () => redis.start()],
  ];
  it.each(faults)(
    'when it %s, every request is decided in time, each instance keeps the limit, and it recovers',
    async (_name, begin, end) => {
      await start(3, { REDIS_URL: proxy.through(redis.url) });
      const answers: Promise<Answer[]> = flood(newClient(), 5.5, 90);
      await sleep(1500);
      await begin();
      const begun = performance.now();
      await sleep(2500);
      await end();
      const all = await answers;
      expect(statusesOf(all)).toEqual([200, 429]);
      expect(mostInASecond(all)).toBeLessThanOrEqual(30);
      expect(mostInASecond(all.filter(({ came }) => came < begun))).toBeLessThanOrEqual(10);
      // Each instance of three on its own lets more pass than all of them together before.
      const meanwhile = all.filter(({ sent }) => sent > begun + 500 && sent < begun + 2000);
      expect(countOf(meanwhile, 200)).toBeGreaterThan(20);
      // The page itself takes part of it.
      expect(await decidesInTime()).toBe(true);
      expect(await metric('rate_limit_store_errors_total')).toBeGreaterThan(0);
      await sleep(1100);
      expect(countOf(await withinASecond(() => together(newClient(), 30)), 200)).toBe(10);
    },
  );

  it('when it is late for one of three instances, now and then, that one adds its own limit at most', async () => {
    await start(2, { REDIS_URL: redis.url });
    await start(1, { REDIS_URL: proxy.through(redis.url) });
    const spells = fc.sample(
      fc.record({ lateMs: fc.integer({ min: 50, max: 250 }), inTimeMs: fc.integer({ min: 900, max: 1500 }) }),
      {
        seed: 2,
        numRuns: 12,
      },
    );
    const answers = flood(newClient(), 18);
    for (const { lateMs, inTimeMs } of spells) {
      proxy.behave('slow');
      await sleep(lateMs);
      proxy.behave('passing');
      await sleep(inTimeMs);
    }
    expect(mostInASecond(await answers)).toBeLessThanOrEqual(20);
    // Nobody is refused because the store is late.
    expect(countOf(await answers, 200)).toBeGreaterThanOrEqual(150);
  });

  it('when its memory is full, a limit still holds', async () => {
    await redis.kill();
    await redis.start('--maxmemory', '1', '--maxmemory-policy', 'noeviction');
    await start(1, { REDIS_URL: redis.url });
    const all = await flood(newClient(), 3);
    expect(statusesOf(all)).toEqual([200, 429]);
    expect(mostInASecond(all)).toBeLessThanOrEqual(10);
    await redis.kill();
    await redis.start();
  });

  it('an instance that has never reached it keeps the limit on its own', async () => {
    proxy.behave('refusing');
    await start(1, { REDIS_URL: proxy.through(redis.url) });
    const all = await flood(newClient(), 3);
    expect(mostInASecond(all)).toBeLessThanOrEqual(10);
    expect(countOf(all, 200)).toBeGreaterThanOrEqual(20);
  });
});

describe('with PostgreSQL as the store', () => {
  it('half-open connections are replaced', async () => {
    const proxy = await openToxicProxy(Number(new URL(databaseUrl).port));
    await start(2, {}, proxy.through(databaseUrl));
    proxy.forgetConnections();
    for (let i = 0; i < 20; i++) {
      await ask(instances[i % 2], newClient());
      await sleep(100);
    }
    const failures = await metric('rate_limit_store_errors_total');
    expect(failures).toBeGreaterThan(0);
    for (let i = 0; i < 20; i++) expect((await ask(instances[0], newClient())).status).toBe(200);
    expect(await metric('rate_limit_store_errors_total')).toBe(failures);
    await Promise.all(instances.splice(0).map((instance) => instance.close()));
    await proxy.close();
  });

  it('a locked row delays no request by more than a quarter of a second, and the limit holds', async () => {
    await start(1, {});
    const client = newClient();
    await ask(instances[0], client);
    const holder = connectTo(databaseUrl);
    await holder`BEGIN`;
    await holder`SELECT FROM rate_limits FOR UPDATE`;
    const all = await flood(client, 2, 50);
    await holder`ROLLBACK`;
    await holder.end();
    expect(statusesOf(all)).toEqual([200, 429]);
    expect(mostInASecond(all)).toBeLessThanOrEqual(10);
    expect(await decidesInTime()).toBe(true);
    await sleep(1100);
    expect(countOf(await withinASecond(() => together(newClient(), 20)), 200)).toBe(10);
  });
});
