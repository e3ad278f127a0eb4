/** Decisions while the store is in trouble, and heartbeats, with a store whose answers the test chooses. */
import { setTimeout as sleep } from 'node:timers/promises';
import { RateLimiterRes } from 'rate-limiter-flexible';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openLog } from '../../src/log.js';
import { createMetrics } from '../../src/metrics.js';
import { type LimitStore, RateLimiter } from '../../src/rateLimit/limiter.js';
import { until } from '../until.js';

const inTrouble = async () => {
  throw new Error('in trouble');
};

let instances: () => Promise<number>;
let consume: () => Promise<RateLimiterRes>;
/** What was asked of the store. */
let consumed: number;
let reopened: number;
let left: string[];
/** Reports to the limiter that its connection to the store was lost. */
let lose: () => void;
let limiter: RateLimiter;

beforeEach(() => {
  left = [];
  consumed = reopened = 0;
  instances = async () => 1;
  consume = async () => new RateLimiterRes(9, 1000, 1);
  const store: LimitStore = {
    kind: 'obedient',
    consume: () => {
      consumed++;
      return consume();
    },
    countInstances: () => instances(),
    leave: async (instance) => void left.push(instance),
    onLoss(report) {
      lose = report;
    },
    reopen: () => void reopened++,
    async close() {},
  };
  limiter = new RateLimiter(store, 10, 1, openLog({ LOG_LEVEL: 'silent' }), createMetrics(1));
});
afterEach(() => limiter.close());

/** How many of `count` requests at once pass. */
async function passing(count: number): Promise<number> {
  const decisions = await Promise.all(Array.from({ length: count }, () => limiter.decide('client')));
  return decisions.filter(({ allowed }) => allowed).length;
}

describe('an instance', () => {
  it('that is the only one goes on without a gap when the store is lost', async () => {
    await limiter.warmUp();
    consume = inTrouble;
    expect(await passing(30)).toBe(10);
  });

  it('that is one of several lets nobody pass in the first second, and then its share', async () => {
    instances = async () => 3;
    await limiter.warmUp();
    consume = inTrouble;
    instances = inTrouble;
    expect(await passing(30)).toBe(0);
    await sleep(1050);
    expect(await passing(30)).toBe(3);
  });

  it('that is one of several still admits only its share just after the store is back, whatever it says', async () => {
    instances = async () => 3;
    await limiter.warmUp();
    consume = inTrouble;
    expect(await passing(1)).toBe(0);
    consume = async () => new RateLimiterRes(9, 1000, 1);
    // One try to reach it later.
    await sleep(400);
    expect(await passing(30)).toBe(3);
  });

  it('lets one request of a client pass where there are more instances than a client has requests', async () => {
    instances = async () => 30;
    await limiter.warmUp();
    consume = instances = inTrouble;
    expect(await passing(5)).toBe(0);
    await sleep(1050);
    expect(await passing(5)).toBe(1);
  });

  it('that has never reached the store lets one request of a client pass in a second', async () => {
    consume = inTrouble;
    instances = inTrouble;
    expect(await passing(5)).toBe(0);
    await sleep(1050);
    expect(await passing(5)).toBe(1);
  });

  it('does not ask a store that is in trouble, except for one retry at a time, on new connections', async () => {
    await limiter.warmUp();
    consume = inTrouble;
    instances = inTrouble;
    await passing(1);
    await passing(20);
    expect(consumed).toBe(1);
    await until(() => reopened > 1, 'the store was tried again, and again');
    instances = async () => 1;
    consume = async () => new RateLimiterRes(9, 1000, 1);
    await until(async () => (await passing(1)) === 1 && consumed > 1, 'the store is asked again');
  });

  it('notices a lost connection without waiting for a request to fail', async () => {
    await limiter.warmUp();
    expect(limiter.isLikelyToPass('client')).toBe(true);
    instances = inTrouble;
    lose();
    // No page is read before the verdict while the store does not answer.
    expect(limiter.isLikelyToPass('client')).toBe(false);
    expect(await passing(30)).toBe(10);
    expect(consumed).toBe(0);
  });

  it('does not ask the store about a client that was just refused, and tells it to wait for at most a second', async () => {
    await limiter.warmUp();
    consume = () => Promise.reject(new RateLimiterRes(0, 600_000, 11));
    const refusals = [await limiter.decide('client'), await limiter.decide('client')];
    expect(refusals.map(({ allowed }) => allowed)).toEqual([false, false]);
    for (const { waitMs } of refusals) expect(waitMs).toBeLessThanOrEqual(1000);
    expect(consumed).toBe(1);
    await limiter.decide('another client');
    expect(consumed).toBe(2);
  });

  it.each([
    ['is the only one decides by itself', 1, true],
    ['is one of several refuses', 3, false],
  ])('that %s where one answer is late while others come, and goes on asking', async (_what, count, isAllowed) => {
    instances = async () => count;
    await limiter.warmUp();
    consume = () => new Promise(() => {});
    const late = limiter.decide('client');
    consume = async () => new RateLimiterRes(9, 1000, 1);
    await sleep(20);
    expect(await passing(1)).toBe(1);
    expect((await late).allowed).toBe(isAllowed);
    const before = consumed;
    expect(await passing(1)).toBe(1);
    expect(consumed).toBe(before + 1);
  });

  it('asks again at its start until it knows of the others', async () => {
    let failures = 0;
    instances = async () => {
      if (++failures <= 4) throw new Error('still starting');
      return 1;
    };
    await limiter.warmUp();
    consume = inTrouble;
    expect(await passing(30)).toBe(10);
  });

  it('leaves in an outage, too, since the store may have recorded it meanwhile', async () => {
    consume = inTrouble;
    instances = inTrouble;
    await limiter.decide('client');
    await limiter.close();
    expect(left).toHaveLength(1);
  });
});
