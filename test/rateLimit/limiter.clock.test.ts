/** Decisions while the store fails, and heartbeats, with a store whose answers the test chooses. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openLog } from '../../src/log.js';
import { createMetrics } from '../../src/metrics.js';
import { type Decision, type LimitStore, RateLimiter, StoreForgot } from '../../src/rateLimit/limiter.js';
import { until } from '../until.js';

const fails = async () => {
  throw new Error('failed');
};
const passes = async (): Promise<Decision> => ({ allowed: true, remaining: 9, waitMs: 1000 });

let register: () => Promise<number>;
let count: () => Promise<Decision>;
/** What was asked of the store. */
let counted: number;
let reopened: number;
let left: number;
let limiter: RateLimiter;

beforeEach(() => {
  left = counted = reopened = 0;
  register = async () => 1;
  count = passes;
  const store: LimitStore = {
    kind: 'obedient',
    count: () => {
      counted++;
      return count();
    },
    register: () => register(),
    leave: async () => void left++,
    reopen: () => void reopened++,
    async close() {},
  };
  limiter = new RateLimiter(store, 10, openLog({ LOG_LEVEL: 'silent' }), createMetrics(1));
});
afterEach(() => limiter.close());

/** Starts the limiter among so many instances, and waits until it knows them. */
async function startAmong(instances: number): Promise<void> {
  register = async () => instances;
  await limiter.warmUp();
  await sleep(1600);
  counted = 0;
}

/** How many of `count` requests at once pass. */
async function passing(count: number): Promise<number> {
  const decisions = await Promise.all(Array.from({ length: count }, () => limiter.decide('client')));
  return decisions.filter(({ allowed }) => allowed).length;
}

describe('an instance', () => {
  it('that is the only one goes on without a gap when the store is lost', async () => {
    await startAmong(1);
    count = fails;
    expect(await passing(30)).toBe(10);
  });

  it('that is one of several lets nobody pass in the first second, and then its quota', async () => {
    await startAmong(3);
    count = fails;
    register = fails;
    expect(await passing(30)).toBe(0);
    await sleep(1050);
    expect(await passing(30)).toBe(3);
  });

  it('that is one of several still admits only its quota just after the store is back, whatever it says', async () => {
    await startAmong(3);
    count = fails;
    expect(await passing(1)).toBe(0);
    count = passes;
    await sleep(600);
    // The outage's first second is not over, even though the store is back.
    expect(await passing(30)).toBe(0);
    await sleep(500);
    expect(await passing(30)).toBe(3);
    await sleep(2500);
    expect(await passing(30)).toBe(10);
  });

  it('lets one request of a client pass where there are more instances than a client has requests', async () => {
    await startAmong(30);
    count = register = fails;
    expect(await passing(5)).toBe(0);
    await sleep(1050);
    expect(await passing(5)).toBe(1);
  });

  it('that has never reached the store lets one request of a client pass in a second', async () => {
    count = fails;
    register = fails;
    expect(await passing(5)).toBe(0);
    await sleep(1050);
    expect(await passing(5)).toBe(1);
  });

  it('does not ask a store that failed, except for one heartbeat at a time, on new connections', async () => {
    await startAmong(1);
    count = fails;
    register = fails;
    await passing(1);
    await passing(20);
    expect(counted).toBe(1);
    await until(() => reopened > 1, 'the store was tried again, and again');
    register = async () => 1;
    count = passes;
    await until(async () => (await passing(1)) === 1 && counted > 1, 'the store is asked again');
  });

  it('notices that the store fails without waiting for a request', async () => {
    await startAmong(1);
    register = fails;
    await sleep(600);
    expect(await passing(30)).toBe(10);
    expect(counted).toBe(0);
  });

  it('keeps to the quota of the instances that it knew, while a store that came back empty learns of them', async () => {
    await startAmong(3);
    count = async () => {
      throw new StoreForgot();
    };
    expect(await passing(1)).toBe(0);
    count = passes;
    register = async () => 1;
    await sleep(1100);
    expect(await passing(30)).toBe(3);
    // The next time, too.
    register = count = fails;
    await sleep(1600);
    expect(await passing(30)).toBe(3);
  });

  it('lets nobody pass for another second when the store fails again, after others may have relied on it', async () => {
    await startAmong(3);
    count = fails;
    expect(await passing(1)).toBe(0);
    count = passes;
    // The store answers for longer than a second, but not long enough for the outage to be over.
    await sleep(2000);
    count = register = fails;
    expect(await passing(30)).toBe(0);
    await sleep(1050);
    expect(await passing(30)).toBe(3);
  });

  it('never lets more than the limit pass by itself, whatever the store says', async () => {
    await startAmong(3);
    expect(await passing(30)).toBe(10);
  });

  it('does not ask the store about a client that was just refused, and tells it to wait for at most a second', async () => {
    await startAmong(1);
    count = async () => ({ allowed: false, remaining: 0, waitMs: 600_000 });
    const refusals = [await limiter.decide('client'), await limiter.decide('client')];
    expect(refusals.map(({ allowed }) => allowed)).toEqual([false, false]);
    for (const { waitMs } of refusals) expect(waitMs).toBeLessThanOrEqual(1000);
    expect(counted).toBe(1);
    await limiter.decide('another client');
    expect(counted).toBe(2);
  });

  it.each([
    ['is the only one decides by itself', 1, true],
    ['is one of several refuses', 3, false],
  ])('that %s where one answer is late while others come, and goes on asking', async (_what, instances, isAllowed) => {
    await startAmong(instances);
    count = () => new Promise(() => {});
    const late = limiter.decide('client');
    count = passes;
    await sleep(20);
    expect(await passing(1)).toBe(1);
    expect((await late).allowed).toBe(isAllowed);
    const before = counted;
    expect(await passing(1)).toBe(1);
    expect(counted).toBe(before + 1);
  });

  it('asks again at its start until it knows of the others', async () => {
    let failures = 0;
    register = async () => {
      if (++failures <= 4) throw new Error('still starting');
      return 1;
    };
    await limiter.warmUp();
    await sleep(1600);
    count = fails;
    expect(await passing(30)).toBe(10);
  });

  it('leaves in an outage, too, since the store may have recorded it meanwhile', async () => {
    count = fails;
    register = fails;
    await limiter.decide('client');
    await limiter.close();
    expect(left).toBe(1);
  });
});
