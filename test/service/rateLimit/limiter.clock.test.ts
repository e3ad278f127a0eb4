/** Decisions while the store fails, is late, or forgets, with a store whose responses the test chooses. */
import { setTimeout as sleep } from 'node:timers/promises';
import { RateLimiterRes } from 'rate-limiter-flexible';
import { describe, test } from 'vitest';
import { openLog } from '../../../src/log.js';
import { createMetrics } from '../../../src/metrics.js';
import { RateLimiter } from '../../../src/service/rateLimit/limiter.js';

const fails = async (): Promise<RateLimiterRes> => {
  throw new Error('failed');
};
/** A limiter and its store, which counts what passes here unless a test replaces `consume`. */
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
    { kind: 'obedient', consume: () => this.consume(), async close() {} },
    10,
    this.#log,
    createMetrics(1),
  );

  /** How many of `count` requests at once pass. */
  async passing(count: number): Promise<number> {
    const decisions = await Promise.all(Array.from({ length: count }, () => this.limiter.count('client').decision));
    return decisions.filter(({ allowed }) => allowed).length;
  }
}

const it = test.extend<{ instance: Instance }>({
  // biome-ignore lint/correctness/noEmptyPattern: vitest reads from the pattern which fixtures one needs
  instance: async ({}, use) => use(new Instance()),
});

// Side by side, since they mostly wait.
describe.concurrent('RateLimiter', () => {
  it('enforces the limit alone while the store fails, without a gap before or after', async ({ expect, instance }) => {
    const responding = instance.consume;
    expect(await instance.passing(6)).toBe(6);
    await sleep(500);
    instance.consume = fails;
    expect(await instance.passing(30)).toBe(4);
    instance.consume = responding;
    expect(await instance.passing(30)).toBe(0);
    await sleep(600);
    // Only the first six are more than a second old.
    instance.consume = fails;
    expect(await instance.passing(30)).toBe(6);
    expect(instance.reasons).toEqual(['failed']);
  });

  it('refuses no client within its limit and allows no more than the limit after the store lost its history', async ({
    expect,
    instance,
  }) => {
    expect(await instance.passing(5)).toBe(5);
    instance.counted = 0;
    await sleep(5);
    expect(await instance.passing(30)).toBe(5);
  });

  it('calls at most 10 requests in a second likely to be allowed, however many the store refuses', async ({
    expect,
    instance,
  }) => {
    instance.consume = async () => {
      throw new RateLimiterRes(0, 1, 11, false);
    };
    const prepared: number[] = [];
    let refused = 0;
    for (const end = performance.now() + 1500; performance.now() < end; await sleep(3)) {
      const counts = Array.from({ length: 4 }, () => instance.limiter.count('client'));
      for (const { isLikelyAllowed } of counts) if (isLikelyAllowed) prepared.push(performance.now());
      refused += (await Promise.all(counts.map(({ decision }) => decision))).length;
    }
    expect(refused).toBeGreaterThan(40);
    const inASecond = prepared.map((at) => prepared.filter((other) => other >= at && other < at + 999).length);
    expect(Math.max(...inASecond)).toBeLessThanOrEqual(10);
    // Once the store lets one pass, it is served all the same.
    instance.consume = async () => new RateLimiterRes(9, 1000, 1, true);
    await sleep(5);
    expect(await instance.passing(1)).toBe(1);
  });

  it('decides alone if the store does not respond', async ({ expect, instance }) => {
    instance.consume = () => new Promise(() => {});
    expect(await instance.passing(30)).toBe(10);
  });

  it('does not ask the store again about a client that it has just refused', async ({ expect, instance }) => {
    let asked = 0;
    instance.consume = async () => {
      asked++;
      throw new RateLimiterRes(0, 1000, 11, false);
    };
    expect(await instance.passing(1)).toBe(0);
    expect(await instance.passing(5)).toBe(0);
    expect(asked).toBe(1);
  });

  it('does not count requests that the store refused', async ({ expect, instance }) => {
    instance.consume = async () => {
      throw new RateLimiterRes(0, 20, 11, false);
    };
    expect(await instance.passing(10)).toBe(0);
    await sleep(30);
    instance.consume = fails;
    expect(await instance.passing(30)).toBe(10);
  });
});
