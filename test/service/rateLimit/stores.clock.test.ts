/** What the stores in Redis and in PostgreSQL have in common. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import type { LimitStore } from '../../../src/service/rateLimit/limiter.js';
import { openPostgresStore } from '../../../src/service/rateLimit/postgresStore.js';
import { openRedisStore } from '../../../src/service/rateLimit/redisStore.js';
import { connectTo } from '../../support/connection.js';
import { createDatabase } from '../../support/database.js';
import { hasRedis, startRedis } from '../../support/redis.js';
import { openToxicProxy } from '../../support/toxicProxy.js';
import { until } from '../../support/until.js';
import { count } from './counting.js';

interface Server {
  url: string;
  open(url: string): LimitStore;
  /** Inserts requests of a client, as an instance would with a clock that is this far ahead. */
  insert(client: string, requests: number, secondsAhead: number): Promise<unknown>;
  close(): Promise<unknown>;
}

async function startServer(kind: string): Promise<Server> {
  if (kind === 'Redis') {
    const server = await startRedis();
    const client = new Redis(server.url);
    return {
      url: server.url,
      open: (url) => openRedisStore(url, 10),
      insert: (name, requests, secondsAhead) =>
        client.rpush(
          `branded-phone-numbers:limit:${name}`,
          ...Array(requests).fill((Date.now() + secondsAhead * 1000) * 1000),
        ),
      async close() {
        client.disconnect();
        await server.kill();
      },
    };
  }
  const { url, drop } = await createDatabase();
  const sql = connectTo(url);
  return {
    url,
    open: (url) => openPostgresStore(url, 10, () => {}),
    insert: (name, requests, secondsAhead) => sql`
      INSERT INTO rate_limits
      SELECT ${name}, array_fill(clock_timestamp() + ${secondsAhead} * interval '1 second', ARRAY[${requests}::integer]), 1`,
    close: () => sql.end().then(drop),
  };
}

describe.each(hasRedis ? ['Redis', 'PostgreSQL'] : ['PostgreSQL'])('the store in %s', (kind) => {
  let server: Server;
  let store: LimitStore;
  const counts = (counting = store) => count(counting, 'first').then(Boolean, () => false);
  beforeAll(async () => {
    server = await startServer(kind);
    store = server.open(server.url);
    await until(() => counts());
  });
  afterAll(async () => {
    await store.close();
    await server.close();
  });
  afterEach(() => void vi.useRealTimers());

  it('refuses a client for at most a second after its clock was set back', async () => {
    await server.insert('ahead', 10, 600);
    const { allowed, remaining, waitMs } = await count(store, 'ahead');
    expect([allowed, remaining]).toEqual([false, 0]);
    expect(waitMs).toBeGreaterThan(900);
    expect(waitMs).toBeLessThanOrEqual(1000);
    await sleep(1010);
    expect(await count(store, 'ahead')).toMatchObject({ allowed: true, remaining: 9 });
  });

  it('includes the requests that an instance of another version has counted', async () => {
    await server.insert('shared', 9, 0);
    expect(await count(store, 'shared')).toMatchObject({ allowed: true, remaining: 0 });
    expect(await count(store, 'shared')).toMatchObject({ allowed: false });
  });

  it.each([-1, 1])('does not depend on the clock of the instance, even if that jumps by %i hours', async (hours) => {
    const client = `instance ${hours}`;
    await count(store, client);
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + hours * 3_600_000 });
    const later = await Promise.all(Array.from({ length: 10 }, () => count(store, client)));
    expect(later.filter(({ allowed }) => allowed)).toHaveLength(9);
  });

  it('replaces connections that are half-open', async () => {
    const proxy = await openToxicProxy(Number(new URL(server.url).port));
    const behindProxy = server.open(proxy.through(server.url));
    await until(() => counts(behindProxy), 'it counts');
    proxy.forgetConnections();
    await until(async () => !(await counts(behindProxy)), 'a count fails', 5000);
    await until(() => counts(behindProxy), 'it counts again', 5000);
    await behindProxy.close();
    await proxy.close();
  });
});
