/** Decisions while the store fails, is late, or forgets, with a store whose answers the test chooses. */
import { setTimeout as sleep } from 'node:timers/promises';
import { RateLimiterRes } from 'rate-limiter-flexible';
import { describe, test } from 'vitest';
import { openLog } from '../../src/log.js';
import { createMetrics } from '../../src/metrics.js';
import { RateLimiter } from '../../src/rateLimit/limiter.js';

const fails = async (): Promise<RateLimiterRes> => {
  throw new Error('failed');
};
/** A limiter and its store, which answers as `consume` says: until then it has counted what passed here. */
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
    const decisions = await Promise.all(Array.from({ length: count }, () => this.limiter.decide('client')));
    return decisions.filter(({ allowed }) => allowed).length;
  }
}

const it = test.extend<{ instance: Instance }>({
  // biome-ignore lint/correctness/noEmptyPattern: vitest reads from the pattern which fixtures one needs
  instance: async ({}, use) => use(new Instance()),
});

// Side by side, since they mostly wait.
describe.concurrent('an instance', () => {
  it('whose store fails lets the limit pass on its own, what passed before included, and no more when it is back', async ({
    expect,
    instance,
  }) => {
    const answers = instance.consume;
    expect(await instance.passing(6)).toBe(6);
    await sleep(500);
    instance.consume = fails;
    expect(await instance.passing(30)).toBe(4);
    instance.consume = answers;
    expect(await instance.passing(30)).toBe(0);
    await sleep(600);
    // Only the first six are more than a second old.
    instance.consume = fails;
    expect(await instance.passing(30)).toBe(6);
    expect(instance.reasons).toEqual(['failed']);
  });

  it('lets a client wait for a second whose requests the store has forgotten', async ({ expect, instance }) => {
    expect(await instance.passing(5)).toBe(5);
    instance.counted = 0;
    await sleep(5);
    expect(await instance.passing(1)).toBe(0);
    expect(await instance.passing(5)).toBe(0);
    await sleep(1050);
    expect(await instance.passing(5)).toBe(5);
  });

  it('does not count what the store refused', async ({ expect, instance }) => {
    instance.consume = async () => {
      throw new RateLimiterRes(0, 20, 11, false);
    };
    expect(await instance.passing(10)).toBe(0);
    await sleep(30);
    instance.consume = fails;
    expect(await instance.passing(30)).toBe(10);
  });
});
