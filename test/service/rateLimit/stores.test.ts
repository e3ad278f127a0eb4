/** What the stores in Redis and in PostgreSQL have in common. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import type { LimitStore } from '../../../src/service/rateLimit/limiter.js';
import { useProxy } from '../../support/toxicProxy.js';
import { until } from '../../support/until.js';
import { withinASecond } from '../../support/withinASecond.js';
import { count } from './counting.js';
import { STORES, type StoreServer, startStoreServer } from './storeServer.js';

describe.each(STORES)('the store in %s', (kind) => {
  let server: StoreServer;
  let store: LimitStore;
  const counts = (counting = store) => count(counting, 'first').then(Boolean, () => false);
  beforeAll(async () => {
    server = await startStoreServer(kind);
    store = server.open(server.port);
    await until(() => counts());
  });
  afterAll(async () => {
    await store.close();
    await server.close();
  });
  afterEach(() => void vi.useRealTimers());

  it('refuses a client for at most a second after its clock was set back', async () => {
    await server.insert('ahead', Array(10).fill(600_000));
    const { allowed, remaining, waitMs } = await count(store, 'ahead');
    expect([allowed, remaining]).toEqual([false, 0]);
    expect(waitMs).toBeGreaterThan(900);
    expect(waitMs).toBeLessThanOrEqual(1000);
    await sleep(1010);
    expect(await count(store, 'ahead')).toMatchObject({ allowed: true, remaining: 9 });
  });

  it('counts a request for a second, unless it is refused', async () => {
    let [client, counted] = ['', 0];
    await withinASecond(async () => {
      client = `for a second ${performance.now()}`;
      for (let i = 0; i < 10; i++) await count(store, client);
      counted = performance.now();
      await sleep(700);
      expect(await count(store, client)).toMatchObject({ allowed: false });
    });
    await sleep(counted + 1010 - performance.now());
    expect(await count(store, client)).toMatchObject({ allowed: true, remaining: 9 });
  });

  it.each([
    ['of the last second', Array(9).fill(0)],
    ['of the last second alone, although 1.1.0 keeps two', [...Array(10).fill(-1500), ...Array(9).fill(0)]],
    ['by a clock that was ahead', Array(9).fill(20)],
  ])('includes the requests %s that instances of other versions have counted', async (name, times) => {
    await withinASecond(async () => {
      const client = `${name} ${performance.now()}`;
      await server.insert(client, times);
      expect(await count(store, client)).toMatchObject({ allowed: true, remaining: 0 });
      expect(await count(store, client)).toMatchObject({ allowed: false });
    });
  });

  it.each([-1, 1])('does not depend on the clock of the instance, even if that jumps by %i hours', async (hours) => {
    await withinASecond(async () => {
      const client = `instance ${hours} ${performance.now()}`;
      await count(store, client);
      vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + hours * 3_600_000 });
      for (let i = 1; i < 10; i++) expect(await count(store, client)).toMatchObject({ allowed: true });
      expect(await count(store, client)).toMatchObject({ allowed: false });
    });
  });

  it('replaces connections that are half-open', async () => {
    const proxy = await useProxy(server.url);
    const behindProxy = server.open(proxy.port);
    await until(() => counts(behindProxy), 'it counts');
    proxy.forgetConnections();
    await until(async () => !(await counts(behindProxy)), 'a count fails', 5000);
    await until(() => counts(behindProxy), 'it counts again', 5000);
    await behindProxy.close();
  });
});
