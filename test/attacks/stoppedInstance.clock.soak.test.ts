/** An instance that is paused for a while, as virtual machines may be, and then resumes as if nothing had happened. */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, it } from 'vitest';
import { createDatabase } from '../database.js';
import { mostInASecond } from '../mostInASecond.js';
import { hasRedis, startRedis } from '../redis.js';
import { type Answer, Client, countByStatus, expectServed, startInstance, writeNumbers } from './instances.js';

const LIMIT = 10;
/** A long one, then short ones, each while the instance has just lost its store because of the one before. */
const STOPS_MS = [3200, 400, 400, 400];
const STORES = hasRedis ? ['PostgreSQL', 'Redis'] : ['PostgreSQL'];

// Both at once: they mostly wait.
describe.concurrent.each(STORES)('an instance that is stopped by SIGSTOP, with the limit in %s,', (store) => {
  it('delays no other instance, gives no wrong answer, and adds its own limit at most when it resumes', async ({
    expect,
    onTestFinished,
  }) => {
    const { url: databaseUrl, drop } = await createDatabase();
    onTestFinished(drop);
    await writeNumbers(databaseUrl);
    const redis = store === 'Redis' ? await startRedis() : undefined;
    onTestFinished(() => redis?.kill());
    const settings = { DATABASE_URL: databaseUrl, ...(redis ? { REDIS_URL: redis.url } : {}) };
    const start = async () => {
      const instance = await startInstance(settings);
      onTestFinished(() => void instance.child.kill('SIGKILL'));
      return instance;
    };
    const newClient = (address: string) => {
      const client = new Client(address);
      onTestFinished(() => client.close());
      return client;
    };
    const [stopped, other] = await Promise.all([start(), start()]);
    const { body: page } = await newClient('203.0.113.99').ask(other);
    const greedy = newClient('203.0.113.1');
    const modest = newClient('203.0.113.2');
    const others = Array.from({ length: 60 }, (_, i) => newClient(`198.51.100.${i}`));
    const toOthers: Promise<Answer>[] = [];
    const [byGreedy, byModest] = [
      greedy.askFor(8, 60, (i) => (i % 2 ? stopped : other)),
      modest.askFor(8, 4, () => other),
    ];
    await Promise.all(others.map((each) => each.ask(stopped)));
    await sleep(1000);
    const begin = performance.now();
    for (const [i, milliseconds] of STOPS_MS.entries()) {
      // Many at once, so that some wait for the store, whose answers the instance reads when it is too late.
      toOthers.push(...others.map((each) => each.ask(stopped)));
      await sleep(2 + 2 * i);
      stopped.child.kill('SIGSTOP');
      await sleep(milliseconds);
      stopped.child.kill('SIGCONT');
      await sleep(100);
    }
    const end = performance.now();
    const all = [...(await byGreedy), ...(await byModest), ...(await Promise.all(toOthers))];

    expect(Object.keys(countByStatus(all))).toEqual(['200', '429']);
    expect(all.filter(({ isWhole }) => !isWhole)).toEqual([]);
    expect(all.filter(({ status, body }) => status === 200 && body !== page)).toEqual([]);
    expect(mostInASecond(await byGreedy)).toBeLessThanOrEqual(2 * LIMIT);
    const meanwhile = ({ instance, sent }: Answer) => instance === other && sent >= begin && sent < end;
    const slowest = Math.max(...all.filter(meanwhile).map(({ sent, came }) => came - sent));
    expect(slowest).toBeLessThan(1000);
    // The modest client gets its pages, the greedy one as many as the limit allows.
    expectServed(await byModest);
    const passed = countByStatus((await byGreedy).filter(meanwhile))[200] ?? 0;
    expect(passed).toBeGreaterThanOrEqual(LIMIT * 3);
  }, 30_000);
});
