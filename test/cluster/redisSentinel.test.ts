/** The limit in a Redis with two replicas and three sentinels, while its primary fails. */
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, it } from 'vitest';
import { openRedisStore } from '../../src/service/rateLimit/redisStore.js';
import { hasRedis, startRedis, startSentinel, type TestRedis } from '../support/redis.js';
import { openToxicProxy } from '../support/toxicProxy.js';
import { until } from '../support/until.js';
import { expectSharedAgain, start, useInstances } from './outage.js';

const DOWN_AFTER_SECONDS = 2;
const SHARED_AGAIN_SECONDS = DOWN_AFTER_SECONDS + 6;
const PASSWORDS = { redis: 'of Redis', sentinel: 'of Sentinel' };

useInstances();

describe.skipIf(!hasRedis)('a limit in a Redis with sentinels', () => {
  let servers: TestRedis[];
  let sentinels: Awaited<ReturnType<typeof startSentinel>>[];
  let client: Redis;

  beforeAll(async () => {
    const passwords = ['--requirepass', PASSWORDS.redis, '--masterauth', PASSWORDS.redis];
    const secret = [...passwords, '--repl-diskless-sync-delay', '0'];
    const primary = await startRedis(...secret);
    const replica = () => startRedis(...secret, '--replicaof', '127.0.0.1', String(primary.port));
    servers = [primary, ...(await Promise.all([replica(), replica()]))];
    const settings = [`requirepass "${PASSWORDS.sentinel}"`, `sentinel sentinel-pass "${PASSWORDS.sentinel}"`];
    sentinels = await Promise.all(
      [1, 2, 3].map(() => startSentinel(primary.port, 2, ...settings, `sentinel auth-pass main "${PASSWORDS.redis}"`)),
    );
    client = new Redis(sentinels[0]?.port ?? 0, { password: PASSWORDS.sentinel });
    const known = /num-slaves 2 .*num-other-sentinels 2 /;
    await until(
      async () => known.test(`${((await client.call('SENTINEL', 'MASTER', 'main')) as string[]).join(' ')} `),
      'the sentinels know each other and the replicas',
      20_000,
    );
  });
  afterAll(async () => {
    client?.disconnect();
    await Promise.all([...servers, ...sentinels].map((server) => server.kill()));
  });

  const urlOf = (...ports: number[]) => {
    const [redis, sentinel] = [PASSWORDS.redis, PASSWORDS.sentinel].map(encodeURIComponent);
    return `redis+sentinel://:${redis}@${ports.map((port) => `127.0.0.1:${port}`)}/main?sentinelPassword=${sentinel}`;
  };
  const primaryNow = async () => {
    const [, port] = (await client.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', 'main')) as string[];
    return servers.find((server) => server.port === Number(port)) as TestRedis;
  };

  beforeEach(() => start(3, { REDIS_URL: urlOf(...sentinels.slice(0, 2).map(({ port }) => port)) }));

  it('is shared again soon after the primary is killed', async () => {
    const killed = await primaryNow();
    await expectSharedAgain('the primary is killed (-9)', SHARED_AGAIN_SECONDS, () => killed.kill());
    await killed.start('--replicaof', '127.0.0.1', String((await primaryNow()).port));
  });

  it('is shared again soon after SENTINEL FAILOVER', () =>
    expectSharedAgain('SENTINEL FAILOVER', SHARED_AGAIN_SECONDS, () => client.call('SENTINEL', 'FAILOVER', 'main')));

  it('is shared again if a failover happens while a store looks up the primary', async () => {
    const sentinel = sentinels[0]?.port as number;
    const slow = await openToxicProxy(sentinel);
    slow.behave('slow');
    const store = openRedisStore(urlOf(slow.port), 10);
    const canCount = () => store.consume(`client ${performance.now()}`).then(Boolean, () => false);
    try {
      await until(canCount, 'the store counts');
      const killed = await primaryNow();
      await killed.kill();
      await until(canCount, 'the store counts again', 20_000);
    } finally {
      await store.close();
      await slow.close();
    }
  });
});
