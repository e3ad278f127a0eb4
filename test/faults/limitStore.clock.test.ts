/** The rate limit: shared by instances in Redis, and kept by each of them while its store is down. */
import { describe, expect, it } from 'vitest';
import {
  ask,
  databaseUrl,
  instances,
  metric,
  newClient,
  start,
  together,
  useInstances,
} from '../support/limitedInstances.js';
import { hasRedis } from '../support/redis.js';
import { openToxicProxy } from '../support/toxicProxy.js';
import { until } from '../support/until.js';
import { withinASecond } from '../support/withinASecond.js';
import { proxy, redis, useFailingRedis } from './failingRedis.js';

useInstances();

describe.skipIf(!hasRedis)('with Redis as the store', () => {
  useFailingRedis();

  it('a client over its limit is refused without asking Redis', async () => {
    await start(1, { REDIS_URL: proxy.through(redis.url) });
    const refused = await withinASecond(async () => {
      proxy.behave('passing');
      const client = newClient();
      await together(client, 11);
      proxy.behave('silent');
      return ask(instances[0], client);
    });
    expect(refused.status).toBe(429);
    // Asking would have found that Redis does not respond.
    expect(await metric('rate_limit_store_errors_total')).toBe(0);
    proxy.behave('passing');
  });

  it('half-open connections are replaced', async () => {
    await start(1, { REDIS_URL: proxy.through(redis.url) });
    proxy.forgetConnections();
    await expectCountedAgain();
  });
});

describe('with PostgreSQL as the store', () => {
  it('half-open connections are replaced', async () => {
    const proxy = await openToxicProxy(Number(new URL(databaseUrl).port));
    await start(1, {}, proxy.through(databaseUrl));
    // The first sweep is over by then: while it kept the only connection, a count would open another one.
    await ask(instances[0], newClient());
    await until(async () => proxy.unanswered() === 0, 'nothing is on its way');
    proxy.forgetConnections();
    await expectCountedAgain();
    await Promise.all(instances.splice(0).map((instance) => instance.close()));
    await proxy.close();
  });
});

/** Fails unless the store fails, perhaps for its first sweep as well, and counts again soon. */
async function expectCountedAgain(): Promise<void> {
  await ask(instances[0], newClient());
  expect(await metric('rate_limit_store_errors_total')).toBeGreaterThan(0);
  await until(async () => {
    const before = await metric('rate_limit_store_errors_total');
    await ask(instances[0], newClient());
    return (await metric('rate_limit_store_errors_total')) === before;
  }, 'the store counts');
}
