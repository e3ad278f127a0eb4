/** What the limiter decides while its store fails, does not respond or loses its history. The store is a fake. */
import { setTimeout as sleep } from 'node:timers/promises';
import { RateLimiterRes } from 'rate-limiter-flexible';
import { describe, expect, it } from 'vitest';
import { openLog } from '../../../src/log.js';
import { createMetrics } from '../../../src/metrics.js';
import { RateLimiter } from '../../../src/service/rateLimit/limiter.js';

const fails = async (): Promise<RateLimiterRes> => {
  throw new Error('failed');
};
/** A limiter and its store, which allows the first 10 requests unless a test replaces `consume`. */
class Instance {
  counted = 0;
  consume = async () => {
    this.counted++;
    return new RateLimiterRes(10 - this.counted, 1000, this.counted, this.counted === 1);
  };
  reasons: string[] = [];
  readonly #log = Object.assign(openLog({ LOG_LEVEL: 'silent' }), {
    error: ({ reason }: { reason: string }) => void this.reasons.push(reason),
  });
  readonly limiter = new RateLimiter(
    { kind: 'fake', consume: () => this.consume(), async close() {} },
    10,
    this.#log,
    createMetrics(1),
  );

  /** Sends `count` requests at once; returns how many are allowed. */
  async allowed(count: number): Promise<number> {
    const decisions = await Promise.all(Array.from({ length: count }, () => this.limiter.count('client').decision));
    return decisions.filter(({ allowed }) => allowed).length;
  }
}

// Concurrent, because they mostly wait.
describe.concurrent('RateLimiter', () => {
  it('enforces the limit while the store fails, including the requests before and after the failure', async () => {
    const instance = new Instance();
    const succeeds = instance.consume;
    expect(await instance.allowed(6)).toBe(6);
    await sleep(500);
    instance.consume = fails;
    expect(await instance.allowed(30)).toBe(4);
    instance.consume = succeeds;
    expect(await instance.allowed(30)).toBe(0);
    await sleep(600);
    // Only the first six are more than a second old.
    instance.consume = fails;
    expect(await instance.allowed(30)).toBe(6);
    expect(instance.reasons).toEqual(['failed']);
  });

  it('allows exactly the limit after the store lost its history', async () => {
    const instance = new Instance();
    expect(await instance.allowed(5)).toBe(5);
    instance.counted = 0;
    await sleep(5);
    expect(await instance.allowed(30)).toBe(5);
  });

  it('sets isLikelyAllowed for at most 10 requests in a second, even if the store refuses many more', async () => {
    const instance = new Instance();
    instance.consume = async () => {
      throw new RateLimiterRes(0, 1, 11, false);
    };
    const likely: number[] = [];
    let refused = 0;
    for (const end = performance.now() + 1500; performance.now() < end; await sleep(3)) {
      const counts = Array.from({ length: 4 }, () => instance.limiter.count('client'));
      for (const { isLikelyAllowed } of counts) if (isLikelyAllowed) likely.push(performance.now());
      refused += (await Promise.all(counts.map(({ decision }) => decision))).length;
    }
    expect(refused).toBeGreaterThan(40);
    const inASecond = likely.map((start) => likely.filter((time) => time >= start && time < start + 999).length);
    expect(Math.max(...inASecond)).toBeLessThanOrEqual(10);
    // A request that the store allows is allowed anyway.
    instance.consume = async () => new RateLimiterRes(9, 1000, 1, true);
    await sleep(5);
    expect(await instance.allowed(1)).toBe(1);
  });

  it('enforces the limit if the store does not respond', async () => {
    const instance = new Instance();
    instance.consume = () => new Promise(() => {});
    expect(await instance.allowed(30)).toBe(10);
  });

  it('does not call the store again for a client that it has just refused', async () => {
    const instance = new Instance();
    let calls = 0;
    instance.consume = async () => {
      calls++;
      throw new RateLimiterRes(0, 1000, 11, false);
    };
    expect(await instance.allowed(1)).toBe(0);
    expect(await instance.allowed(5)).toBe(0);
    expect(calls).toBe(1);
  });

  it('does not count requests that the store refused', async () => {
    const instance = new Instance();
    instance.consume = async () => {
      throw new RateLimiterRes(0, 20, 11, false);
    };
    expect(await instance.allowed(10)).toBe(0);
    await sleep(30);
    instance.consume = fails;
    expect(await instance.allowed(30)).toBe(10);
  });
});
