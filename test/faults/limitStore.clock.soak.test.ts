/** The limit while its store is stuck or full: every request is decided in time, and each instance keeps it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { connectTo } from '../support/connection.js';
import {
  ask,
  countOf,
  databaseUrl,
  decidesInTime,
  flood,
  instances,
  newClient,
  start,
  statusesOf,
  together,
  useInstances,
} from '../support/limitedInstances.js';
import { mostInASecond } from '../support/mostInASecond.js';
import { hasRedis } from '../support/redis.js';
import { withinASecond } from '../support/withinASecond.js';
import { redis, useFailingRedis } from './failingRedis.js';

useInstances();

describe.skipIf(!hasRedis)('with Redis as the store', () => {
  useFailingRedis();

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
