/** The limit while its store is late, stuck or full: every request is decided in time, and each instance keeps it. */
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { connectTo } from '../support/connection.js';
import {
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
} from '../support/limitedInstances.js';
import { mostInASecond } from '../support/mostInASecond.js';
import { hasRedis } from '../support/redis.js';
import { withinASecond } from '../support/withinASecond.js';
import { proxy, redis, useFailingRedis } from './failingRedis.js';

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

  it('that hangs under three instances, each keeps the limit, and all together as soon as it is back', async () => {
    await start(3, { REDIS_URL: proxy.through(redis.url) });
    const answers = flood(newClient(), 5.5, 90);
    await sleep(1500);
    proxy.behave('silent');
    const begun = performance.now();
    await sleep(2500);
    proxy.behave('passing');
    const all = await answers;
    expect(statusesOf(all)).toEqual([200, 429]);
    expect(mostInASecond(all)).toBeLessThanOrEqual(30);
    expect(mostInASecond(all.filter(({ came }) => came < begun))).toBeLessThanOrEqual(10);
    // Each instance of three on its own lets more pass than all of them together before.
    const meanwhile = all.filter(({ sent }) => sent > begun + 500 && sent < begun + 2000);
    expect(countOf(meanwhile, 200)).toBeGreaterThan(20);
    expect(await decidesInTime()).toBe(true);
    expect(await metric('rate_limit_store_errors_total')).toBeGreaterThan(0);
    await sleep(1100);
    expect(countOf(await withinASecond(() => together(newClient(), 30)), 200)).toBe(10);
  });

  it('that is late for one of three instances, now and then, that one adds its own limit at most', async () => {
    await start(2, { REDIS_URL: redis.url });
    await start(1, { REDIS_URL: proxy.through(redis.url) });
    const spell = fc.record({
      lateMs: fc.integer({ min: 50, max: 250 }),
      inTimeMs: fc.integer({ min: 900, max: 1500 }),
    });
    const answers = flood(newClient(), 18);
    for (const { lateMs, inTimeMs } of fc.sample(spell, 12)) {
      proxy.behave('slow');
      await sleep(lateMs);
      proxy.behave('passing');
      await sleep(inTimeMs);
    }
    expect(mostInASecond(await answers)).toBeLessThanOrEqual(20);
    // Nobody is refused because the store is late.
    expect(countOf(await answers, 200)).toBeGreaterThanOrEqual(150);
  });

  it('whose memory is full, an instance keeps the limit on its own', async () => {
    await redis.configure('maxmemory', '1');
    await start(1, { REDIS_URL: redis.url });
    const all = await flood(newClient(), 3);
    expect(statusesOf(all)).toEqual([200, 429]);
    expect(mostInASecond(all)).toBeLessThanOrEqual(10);
    expect(countOf(all, 200)).toBeGreaterThanOrEqual(20);
  });
});

describe('with PostgreSQL as the store', () => {
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
