/** Decisions while the store fails, and heartbeats, with a store whose answers the test chooses. */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, test } from 'vitest';
import { openLog } from '../../src/log.js';
import { createMetrics } from '../../src/metrics.js';
import { type Decision, type LimitStore, RateLimiter, StoreForgot } from '../../src/rateLimit/limiter.js';
import { until } from '../until.js';

const fails = async () => {
  throw new Error('failed');
};
const passes = async (): Promise<Decision> => ({ allowed: true, remaining: 9, waitMs: 1000 });

/** A limiter and its store, which answers as the members `register` and `count` say. */
class Instance {
  register = async () => 1;
  /** Whether the store says that it did not know the instance. */
  isNew = false;
  count = passes;
  /** The calls to the store. */
  counted = 0;
  reopened = 0;
  left = 0;
  readonly #store: LimitStore = {
    kind: 'obedient',
    count: () => {
      this.counted++;
      return this.count();
    },
    register: async () => ({ instances: await this.register(), isNew: this.isNew }),
    leave: async () => void this.left++,
    reopen: () => void this.reopened++,
    async close() {},
  };
  readonly limiter = new RateLimiter(this.#store, 10, openLog({ LOG_LEVEL: 'silent' }), createMetrics(1));

  /** Starts among so many instances, and waits until it knows them. */
  async startAmong(instances: number): Promise<void> {
    this.register = async () => instances;
    await this.limiter.warmUp();
    await sleep(1600);
    this.counted = 0;
  }

  /** How many of `count` requests at once pass. */
  async passing(count: number): Promise<number> {
    const decisions = await Promise.all(Array.from({ length: count }, () => this.limiter.decide('client')));
    return decisions.filter(({ allowed }) => allowed).length;
  }
}

const it = test.extend<{ instance: Instance }>({
  // biome-ignore lint/correctness/noEmptyPattern: vitest reads from the pattern which fixtures one needs
  instance: async ({}, use) => {
    const instance = new Instance();
    await use(instance);
    await instance.limiter.close();
  },
});

// Side by side, since they mostly wait.
describe.concurrent('an instance', () => {
  it('that is the only one goes on without a gap when the store is lost', async ({ expect, instance }) => {
    await instance.startAmong(1);
    instance.count = fails;
    expect(await instance.passing(30)).toBe(10);
  });

  it('that is one of several lets nobody pass in the first second, and then its quota', async ({
    expect,
    instance,
  }) => {
    await instance.startAmong(3);
    instance.count = fails;
    instance.register = fails;
    expect(await instance.passing(30)).toBe(0);
    await sleep(1050);
    expect(await instance.passing(30)).toBe(3);
  });

  it('that is one of several still admits only its quota just after the store is back, whatever it says', async ({
    expect,
    instance,
  }) => {
    await instance.startAmong(3);
    instance.count = fails;
    expect(await instance.passing(1)).toBe(0);
    instance.count = passes;
    await sleep(600);
    // The outage's first second is not over, even though the store is back.
    expect(await instance.passing(30)).toBe(0);
    await sleep(500);
    expect(await instance.passing(30)).toBe(3);
    await sleep(2500);
    expect(await instance.passing(30)).toBe(10);
  });

  it('lets one request of a client pass if there are more instances than a client has requests', async ({
    expect,
    instance,
  }) => {
    await instance.startAmong(30);
    instance.count = instance.register = fails;
    expect(await instance.passing(5)).toBe(0);
    await sleep(1050);
    expect(await instance.passing(5)).toBe(1);
  });

  it('that has never reached the store lets one request of a client pass in a second', async ({ expect, instance }) => {
    instance.count = fails;
    instance.register = fails;
    expect(await instance.passing(5)).toBe(0);
    await sleep(1050);
    expect(await instance.passing(5)).toBe(1);
  });

  it('does not ask a store that failed, except for one heartbeat at a time, on new connections', async ({
    expect,
    instance,
  }) => {
    await instance.startAmong(1);
    instance.count = fails;
    instance.register = fails;
    await instance.passing(1);
    await instance.passing(20);
    expect(instance.counted).toBe(1);
    await until(() => instance.reopened > 1, 'the store was tried again, and again');
    instance.register = async () => 1;
    instance.count = passes;
    await until(async () => (await instance.passing(1)) === 1 && instance.counted > 1, 'the store is asked again');
  });

  it('notices that the store fails without waiting for a request', async ({ expect, instance }) => {
    await instance.startAmong(1);
    instance.register = fails;
    await sleep(600);
    expect(await instance.passing(30)).toBe(10);
    expect(instance.counted).toBe(0);
  });

  it('keeps to the quota of the instances that it knew, while a store that came back empty learns of them', async ({
    expect,
    instance,
  }) => {
    await instance.startAmong(3);
    instance.count = async () => {
      throw new StoreForgot();
    };
    expect(await instance.passing(1)).toBe(0);
    instance.count = passes;
    instance.register = async () => 1;
    await sleep(1100);
    expect(await instance.passing(30)).toBe(3);
    // The next time, too.
    instance.register = instance.count = fails;
    await sleep(1600);
    expect(await instance.passing(30)).toBe(3);
  });

  it('learns from a heartbeat alone that the store came back empty', async ({ expect, instance }) => {
    await instance.startAmong(3);
    instance.isNew = true;
    await sleep(600);
    instance.isNew = false;
    expect(await instance.passing(1)).toBe(0);
  });

  it('counts the instances that it knew for some seconds more when the store names fewer', async ({
    expect,
    instance,
  }) => {
    await instance.startAmong(3);
    instance.register = async () => 2;
    await sleep(1000);
    instance.count = instance.register = fails;
    expect(await instance.passing(30)).toBe(0);
    await sleep(1050);
    expect(await instance.passing(30)).toBe(3);
  });

  it('learns of other instances from a heartbeat that is answered late, too', async ({ expect, instance }) => {
    await instance.startAmong(2);
    instance.register = () => sleep(300, 3);
    await sleep(1000);
    instance.count = instance.register = fails;
    expect(await instance.passing(30)).toBe(0);
    await sleep(1050);
    expect(await instance.passing(30)).toBe(3);
  });

  it('lets nobody pass for another second when the store fails again, after others may have relied on it', async ({
    expect,
    instance,
  }) => {
    await instance.startAmong(3);
    instance.count = fails;
    expect(await instance.passing(1)).toBe(0);
    instance.count = passes;
    // The store answers for longer than a second, but not long enough for the outage to be over.
    await sleep(2000);
    instance.count = instance.register = fails;
    expect(await instance.passing(30)).toBe(0);
    await sleep(1050);
    expect(await instance.passing(30)).toBe(3);
  });

  it('says that nothing is left, not less, when others have a higher limit', async ({ expect, instance }) => {
    await instance.limiter.warmUp();
    instance.count = async () => ({ allowed: false, remaining: -5, waitMs: 1000 });
    expect(await instance.limiter.decide('client')).toMatchObject({ allowed: false, remaining: 0 });
  });

  it('never lets more than the limit pass on its own, whatever the store says', async ({ expect, instance }) => {
    await instance.startAmong(3);
    expect(await instance.passing(30)).toBe(10);
  });

  it('does not ask the store about a client that was just refused, and tells it to wait for at most a second', async ({
    expect,
    instance,
  }) => {
    await instance.startAmong(1);
    instance.count = async () => ({ allowed: false, remaining: 0, waitMs: 600_000 });
    const refusals = [await instance.limiter.decide('client'), await instance.limiter.decide('client')];
    expect(refusals.map(({ allowed }) => allowed)).toEqual([false, false]);
    for (const { waitMs } of refusals) expect(waitMs).toBeLessThanOrEqual(1000);
    expect(instance.counted).toBe(1);
    await instance.limiter.decide('another client');
    expect(instance.counted).toBe(2);
  });

  it.for<[string, number, boolean]>([
    ['is the only one decides on its own', 1, true],
    ['is one of several refuses', 3, false],
  ])(
    'that %s where one answer is late while others come, and goes on asking',
    async ([_what, instances, isAllowed], { expect, instance }) => {
      await instance.startAmong(instances);
      instance.count = () => new Promise(() => {});
      const late = instance.limiter.decide('client');
      instance.count = passes;
      await sleep(20);
      expect(await instance.passing(1)).toBe(1);
      expect((await late).allowed).toBe(isAllowed);
      const before = instance.counted;
      expect(await instance.passing(1)).toBe(1);
      expect(instance.counted).toBe(before + 1);
    },
  );

  it('asks again at its start until it knows of the others', async ({ expect, instance }) => {
    let failures = 0;
    instance.register = async () => {
      if (++failures <= 4) throw new Error('still starting');
      return 1;
    };
    await instance.limiter.warmUp();
    await sleep(1600);
    instance.count = fails;
    expect(await instance.passing(30)).toBe(10);
  });

  it('leaves in an outage, too, since the store may have recorded it meanwhile', async ({ expect, instance }) => {
    instance.count = fails;
    instance.register = fails;
    await instance.limiter.decide('client');
    await instance.limiter.close();
    expect(instance.left).toBe(1);
  });
});
