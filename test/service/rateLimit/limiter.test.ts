/** What the limiter decides while its store fails, is late, or has lost its data. */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openLog } from '../../../src/log.js';
import { createMetrics } from '../../../src/metrics.js';
import { RateLimiter } from '../../../src/service/rateLimit/limiter.js';
import { openPostgresStore } from '../../../src/service/rateLimit/postgresStore.js';
import { useDatabase } from '../../support/database.js';
import { useProxy } from '../../support/toxicProxy.js';
import { until } from '../../support/until.js';
import { watchStore, withinASecond } from '../../support/withinASecond.js';
import { insertRequests, LIMIT } from './storeServer.js';

let clients = 0;

/** stores.test.ts tests what the stores have in common; the limiter is the same for both. */
describe('a limiter', () => {
  const database = useDatabase();
  const insert = (client: string, times: number[]) => insertRequests(database.sql, client, times);

  /** Opens a limiter behind a proxy. */
  async function open() {
    const proxy = await useProxy(database.url);
    const reasons: string[] = [];
    const returns: unknown[][] = [];
    const log = Object.assign(openLog({ LOG_LEVEL: 'silent' }), {
      error: ({ reason }: { reason: string }) => void reasons.push(reason),
      info: (...line: unknown[]) => void returns.push(line),
    });
    const { consume, ...store } = openPostgresStore(proxy.through(database.url), LIMIT, () => {});
    const calls: string[] = [];
    const counting = {
      ...store,
      consume(client: string) {
        calls.push(client);
        return consume(client);
      },
    };
    const metrics = createMetrics(1);
    const limiter = new RateLimiter(counting, LIMIT, log, metrics);
    onTestFinished(() => limiter.close());
    await limiter.warmUp();
    /** Sends `count` requests at once; returns how many are allowed. */
    async function allowed(client: string, count: number): Promise<number> {
      const decisions = await Promise.all(Array.from({ length: count }, () => limiter.count(client).decision));
      return decisions.filter(({ allowed }) => allowed).length;
    }
    const failures = async () => /^rate_limit_store_errors_total \d+$/m.exec(await metrics.text())?.[0];
    return { proxy, store: counting.kind, limiter, metrics, reasons, returns, calls, allowed, failures };
  }
  const newClient = () => `client ${++clients}`;

  it('logs once that the store is available again, and then its next failure', async () => {
    const { proxy, reasons, returns, allowed, store } = await open();
    for (const count of [1, 2]) {
      proxy.behave('refusing');
      await until(
        async () => (await allowed(newClient(), 1)) === 1 && reasons.length >= count,
        'the failure is logged',
      );
      proxy.behave('passing');
      await until(async () => (await allowed(newClient(), 1)) === 1 && returns.length >= count, 'the return is logged');
      for (let i = 0; i < 5; i++) await allowed(newClient(), 1);
      expect(returns).toEqual(Array(count).fill([{ store }, 'rate limit store available again']));
    }
  });

  it('reports no failure of the store if it is closed while it warms up', async () => {
    const { proxy, limiter, reasons } = await open();
    proxy.behave('refusing');
    const warming = limiter.warmUp();
    await limiter.close();
    await warming;
    expect(reasons).toEqual([]);
  });

  it('keeps the limit while the store can’t be reached, including the requests before', async () => {
    const { proxy, allowed, reasons } = await open();
    const burst = async () => {
      const client = newClient();
      proxy.behave('passing');
      expect(await allowed(client, 6)).toBe(6);
      const counted = performance.now();
      await sleep(400);
      proxy.behave('refusing');
      expect(await allowed(client, 30)).toBe(4);
      await sleep(counted + 1001 - performance.now());
      // Only the first six are more than a second old.
      expect(await allowed(client, 30)).toBe(6);
    };
    await withinASecond(burst, { limitMs: 1400 });
    expect(reasons.length).toBeGreaterThan(0);
  });

  it('keeps the limit while the store does not respond', async () => {
    const { proxy, allowed, reasons } = await open();
    proxy.behave('silent');
    await withinASecond(async () => expect(await allowed(newClient(), 30)).toBe(10));
    expect(reasons).toContain('no response within 150 ms');
  });

  it('allows exactly the limit after the store lost its data', async () => {
    const { allowed, limiter } = await open();
    await withinASecond(async () => {
      const client = newClient();
      expect(await allowed(client, 5)).toBe(5);
      await database.sql`DELETE FROM rate_limits`;
      expect(await limiter.count(client).decision).toMatchObject({ allowed: true, remaining: 4 });
      expect(await allowed(client, 30)).toBe(4);
    });
  });

  it('does not ask the store again for a client that it has just refused', async () => {
    const { allowed, calls, metrics } = await open();
    onTestFinished(watchStore(metrics.text));
    await withinASecond(async () => {
      const client = newClient();
      await insert(client, Array(10).fill(0));
      expect(await allowed(client, 1)).toBe(0);
      expect(await allowed(client, 5)).toBe(0);
      expect(calls.filter((called) => called === client)).toHaveLength(1);
    });
  });

  it('refuses a client no longer than the store says, even if that arrives late', async () => {
    const { allowed, proxy, metrics } = await open();
    onTestFinished(watchStore(metrics.text));
    const burst = async () => {
      const client = newClient();
      await insert(client, Array(10).fill(-500));
      const inserted = performance.now();
      proxy.behave('slow', 60);
      expect(await allowed(client, 1)).toBe(0);
      await sleep(inserted + 510 - performance.now());
      expect(await allowed(client, 1)).toBe(1);
    };
    await withinASecond(burst);
  });

  it('does not count requests that the store refused', async () => {
    const { allowed, proxy, failures } = await open();
    await withinASecond(async () => {
      const client = newClient();
      proxy.behave('passing');
      await insert(client, Array(10).fill(-500));
      const before = await failures();
      const allowedAtFirst = await allowed(client, 10);
      // If the store was late, as on a busy machine, the burst is repeated.
      if ((await failures()) !== before) return sleep(1000);
      expect(allowedAtFirst).toBe(0);
      await sleep(510);
      proxy.behave('refusing');
      expect(await allowed(client, 30)).toBe(10);
    });
  });

  it('sets isLikelyAllowed for at most 10 requests in a second, even if the store refuses many more', async () => {
    const [{ limiter, calls }, other] = [await open(), await open()];
    const client = newClient();
    const likely: number[] = [];
    for (const end = performance.now() + 2500; performance.now() < end; await sleep(3)) {
      const counts = Array.from({ length: 4 }, () => limiter.count(client));
      for (const { isLikelyAllowed } of counts) if (isLikelyAllowed) likely.push(performance.now());
      await Promise.all([...counts.map(({ decision }) => decision), other.allowed(client, 1)]);
    }
    expect(calls.length).toBeGreaterThan(40);
    const inASecond = likely.map((start) => likely.filter((time) => time >= start && time < start + 999).length);
    expect(Math.max(...inASecond)).toBeLessThanOrEqual(10);
    await sleep(1010);
    expect(limiter.count(client).isLikelyAllowed).toBe(true);
  });
});
