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
  heardOfEachOther,
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
    'when it %s, every request is decided in time, none beyond the limit, and it recovers',
    async (_name, begin, end) => {
      await start(3, { REDIS_URL: proxy.through(redis.url) });
      await heardOfEachOther();
      const answers: Promise<Answer[]> = flood(newClient(), 7.5, 60);
      await sleep(1500);
      await begin();
      await sleep(2500);
      await end();
      await sleep(2500);
      // The quotas of three instances make nine; only the shared limit gives ten.
      const all = await answers;
      expect(statusesOf(all)).toEqual([200, 429]);
      expect(mostInASecond(all)).toBeLessThanOrEqual(10);
      // The page itself takes part of it.
      expect(await decidesInTime()).toBe(true);
      expect(await metric('rate_limit_store_errors_total')).toBeGreaterThan(0);
      expect(await metric('rate_limit_store_up')).toBe(1);
      // In the outage, after its first second, each instance goes on with its quota of three.
      const begun = all[0]?.sent ?? 0;
      const between = (from: number, to: number) =>
        countOf(
          all.filter(({ sent }) => sent > begun + from && sent < begun + to),
          200,
        );
      expect(between(2700, 3900)).toBeGreaterThanOrEqual(3);
      await sleep(1100);
      expect(countOf(await withinASecond(() => together(newClient(), 30)), 200)).toBe(10);
    },
  );

  it('when it is late for one of three instances, now and then, none pass beyond the limit', async () => {
    await start(2, { REDIS_URL: redis.url });
    await start(1, { REDIS_URL: proxy.through(redis.url) });
    await heardOfEachOther();
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
    expect(mostInASecond(await answers)).toBeLessThanOrEqual(10);
    expect(countOf(await answers, 200)).toBeGreaterThanOrEqual(100);
  });

  it('when its memory is full, a limit still holds', async () => {
    await redis.kill();
    await redis.start('--maxmemory', '1', '--maxmemory-policy', 'noeviction');
    await start(1, { REDIS_URL: redis.url });
    const all = await flood(newClient(), 3);
    expect(statusesOf(all)).toEqual([200, 429]);
    expect(mostInASecond(all)).toBeLessThanOrEqual(10);
    expect(await metric('rate_limit_store_up')).toBe(0);
    await redis.kill();
    await redis.start();
  });

  it('an instance that has never reached it lets each client send one request a second', async () => {
    proxy.behave('refusing');
    await start(1, { REDIS_URL: proxy.through(redis.url) });
    await sleep(1200);
    const all = await flood(newClient(), 3);
    // One a second, and nobody in the first.
    expect(mostInASecond(all)).toBeLessThanOrEqual(1);
    expect(countOf(all, 200)).toBeGreaterThanOrEqual(1);
  });
});

describe('with PostgreSQL as the store', () => {
  it('half-open connections are replaced, and then no request is refused that should pass', async () => {
    const proxy = await openToxicProxy(Number(new URL(databaseUrl).port));
    await start(2, {}, proxy.through(databaseUrl));
    await heardOfEachOther();
    proxy.forgetConnections();
    for (let i = 0; i < 20; i++) {
      await ask(instances[i % 2], newClient());
      await sleep(100);
    }
    await sleep(3500);
    const later: Answer[] = [];
    for (let i = 0; i < 20; i++) later.push(await ask(instances[i % 2], newClient()));
    expect(later.map(({ status }) => status)).toEqual(Array(20).fill(200));
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
    await sleep(3100);
    expect(countOf(await withinASecond(() => together(newClient(), 20)), 200)).toBe(10);
  });
});
