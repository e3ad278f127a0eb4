/** Trouble with the rate limit's store: dead, hung, slow, full, restarted; with several instances. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config.js';
import { openLog } from '../../src/log.js';
import { type Service, startService } from '../../src/server.js';
import { createDatabase } from '../database.js';
import { hasRedis, startRedis, type TestRedis } from '../redis.js';
import { openToxicProxy, type ToxicProxy } from './toxicProxy.js';

const PATH = '/v1/brandedPhoneNumbers';
const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

interface Answer {
  status: number;
  /** When it was asked for and when it came, in milliseconds. */
  sent: number;
  came: number;
}

const instances: Service[] = [];
let drop: () => Promise<void>;
let databaseUrl: string;

beforeAll(async () => {
  ({ url: databaseUrl, drop } = await createDatabase());
});
afterAll(() => drop());
// What the client has used up in the test before is forgotten after a second.
beforeEach(() => pause(1050));
afterEach(async () => {
  await Promise.all(instances.splice(0).map((instance) => instance.close()));
});

async function start(count: number, environment: Record<string, string>): Promise<void> {
  const config = readConfig({ PORT: '0', LOG_LEVEL: 'silent', METRICS_PORT: '0', TRUST_PROXY: '1', ...environment });
  for (let i = 0; i < count; i++) instances.push(await startService(config, databaseUrl, openLog(config)));
  // Until every instance has heard of the others.
  if (count > 1) await pause(2500);
}

async function ask(instance: Service | undefined, client = '203.0.113.1'): Promise<Answer> {
  const sent = performance.now();
  const response = await fetch(`${instance?.url}${PATH}`, { headers: { 'X-Forwarded-For': client } });
  await response.arrayBuffer();
  return { status: response.status, sent, came: performance.now() };
}

/** One client asks all instances in turn as fast as `rate` a second, for `seconds`. */
async function flood(seconds: number, rate = 100): Promise<Answer[]> {
  const answers: Promise<Answer>[] = [];
  const end = performance.now() + seconds * 1000;
  for (let i = 0; performance.now() < end; i++) {
    answers.push(ask(instances[i % instances.length]));
    await pause(1000 / rate);
  }
  return Promise.all(answers);
}

/** The most requests let through in any one second; by the latest they can have been decided and the earliest. */
function mostInASecond(answers: Answer[]): number {
  const passed = answers.filter(({ status }) => status === 200).sort((a, b) => a.came - b.came);
  return Math.max(
    0,
    ...passed.map(({ came }) => passed.filter((other) => other.sent >= came && other.came < came + 1000).length),
  );
}

/** Decisions of the first instance that took longer than 250 ms. */
async function lateDecisions(): Promise<number> {
  const text = await metricsText();
  const sum = (pattern: RegExp) => [...text.matchAll(pattern)].reduce((total, [, count]) => total + Number(count), 0);
  const inTime = sum(/^rate_limit_decision_seconds_bucket{le="0.25",[^}]*} (\d+)$/gm);
  return sum(/^rate_limit_decision_seconds_count{[^}]*} (\d+)$/gm) - inTime;
}

const statusesOf = (answers: Answer[]) => [...new Set(answers.map(({ status }) => status))].sort();
const countOf = (answers: Answer[], status: number) => answers.filter((answer) => answer.status === status).length;

async function metricsText(): Promise<string> {
  return (await fetch(`${instances[0]?.metricsUrl}/metrics`)).text();
}

async function metric(name: string): Promise<number> {
  const text = await metricsText();
  return Number(new RegExp(`^${name}(?:{[^}]*})? (\\S+)$`, 'm').exec(text)?.[1] ?? 0);
}

describe.skipIf(!hasRedis)('with Redis as the store', () => {
  let redis: TestRedis;
  let proxy: ToxicProxy;
  beforeAll(async () => {
    redis = await startRedis();
  });
  beforeEach(async () => {
    proxy = await openToxicProxy(redis.port);
  });
  afterEach(() => proxy.close());
  afterAll(() => redis.kill());

  it('ten of fifty at once pass over three instances, and ten in every later second', async () => {
    await start(3, { REDIS_URL: redis.url });
    const burst = await Promise.all(Array.from({ length: 50 }, (_, i) => ask(instances[i % 3])));
    expect(countOf(burst, 200)).toBe(10);
    expect(countOf(burst, 429)).toBe(40);
    const stream = await flood(3);
    expect(mostInASecond([...burst, ...stream])).toBeLessThanOrEqual(10);
    expect(countOf(stream, 200)).toBeGreaterThanOrEqual(20);
  });

  it('a client is let through again as soon as its oldest request is a second old', async () => {
    await start(1, { REDIS_URL: redis.url });
    const first = await ask(instances[0]);
    await pause(600);
    await Promise.all(Array.from({ length: 9 }, () => ask(instances[0])));
    expect((await ask(instances[0])).status).toBe(429);
    await pause(first.came + 1001 - performance.now());
    expect(countOf(await Promise.all([ask(instances[0]), ask(instances[0])]), 200)).toBe(1);
  });

  it('a client over its limit is refused without asking Redis', async () => {
    await start(1, { REDIS_URL: proxy.through(redis.url) });
    await Promise.all(Array.from({ length: 11 }, () => ask(instances[0])));
    proxy.behave('silent');
    const refused = await ask(instances[0]);
    expect(refused.status).toBe(429);
    expect(refused.came - refused.sent).toBeLessThan(100);
  });

  const troubles: [string, () => Promise<unknown> | unknown, () => Promise<unknown> | unknown][] = [
    ['closes every connection', () => proxy.behave('refusing'), () => proxy.behave('passing')],
    ['hangs', () => proxy.behave('silent'), () => proxy.behave('passing')],
    ['is too slow', () => proxy.behave('slow'), () => proxy.behave('passing')],
    ['is stopped by its system', () => redis.pause(), () => redis.resume()],
    ['is killed and started empty', () => redis.kill(), () => redis.start()],
  ];
  it.each(troubles)(
    'when it %s, every request is decided in time, none beyond the limit, and it recovers',
    async (_name, begin, end) => {
      await start(3, { REDIS_URL: proxy.through(redis.url) });
      const answers: Promise<Answer[]> = flood(7.5, 60);
      await pause(1500);
      await begin();
      await pause(2500);
      await end();
      await pause(2500);
      // The share of three instances is nine; only the shared limit gives ten.
      const all = await answers;
      expect(statusesOf(all)).toEqual([200, 429]);
      expect(mostInASecond(all)).toBeLessThanOrEqual(10);
      // The page itself takes part of it.
      expect(await lateDecisions()).toBe(0);
      expect(await metric('rate_limit_store_errors_total')).toBeGreaterThan(0);
      expect(await metric('rate_limit_store_up')).toBe(1);
      // In the outage, after its first second, each instance goes on with its share of three.
      const begun = all[0]?.sent ?? 0;
      const between = (from: number, to: number) =>
        countOf(
          all.filter(({ sent }) => sent > begun + from && sent < begun + to),
          200,
        );
      expect(between(2700, 3900)).toBeGreaterThanOrEqual(3);
      await pause(1100);
      expect(countOf(await Promise.all(Array.from({ length: 30 }, (_, i) => ask(instances[i % 3]))), 200)).toBe(10);
    },
  );

  it('when its memory is full, a limit still holds', async () => {
    await redis.kill();
    await redis.start('--maxmemory', '1', '--maxmemory-policy', 'noeviction');
    await start(1, { REDIS_URL: redis.url });
    const all = await flood(3);
    expect(statusesOf(all)).toEqual([200, 429]);
    expect(mostInASecond(all)).toBeLessThanOrEqual(10);
    expect(await metric('rate_limit_store_up')).toBe(0);
    await redis.kill();
    await redis.start();
  });

  it('a single instance has no gap when it goes away', async () => {
    await start(1, { REDIS_URL: proxy.through(redis.url) });
    await pause(200);
    proxy.behave('silent');
    const all = await Promise.all(Array.from({ length: 30 }, () => ask(instances[0])));
    expect([countOf(all, 200), countOf(all, 429)]).toEqual([10, 20]);
    expect(await lateDecisions()).toBe(0);
    proxy.behave('passing');
  });

  it('never asked because it was away at the start, the least that is safe is let through', async () => {
    proxy.behave('refusing');
    await start(1, { REDIS_URL: proxy.through(redis.url) });
    await pause(1200);
    const all = await flood(2);
    expect(mostInASecond(all)).toBe(1);
  });
});

describe('with PostgreSQL as the store', () => {
  it('connections that are half-open are replaced, and then nobody is refused who should pass', async () => {
    const proxy = await openToxicProxy(Number(new URL(databaseUrl).port));
    const direct = databaseUrl;
    databaseUrl = proxy.through(direct);
    await start(2, {});
    databaseUrl = direct;
    proxy.forgetConnections();
    for (let i = 0; i < 20; i++) {
      await ask(instances[i % 2], `203.0.113.${10 + i}`);
      await pause(100);
    }
    await pause(3500);
    const later: Answer[] = [];
    for (let i = 0; i < 20; i++) later.push(await ask(instances[i % 2], `203.0.113.${50 + i}`));
    expect(later.map(({ status }) => status)).toEqual(Array(20).fill(200));
    await Promise.all(instances.splice(0).map((instance) => instance.close()));
    await proxy.close();
  });

  it('a row that is locked delays nobody beyond a quarter of a second, and the limit holds', async () => {
    await start(1, {});
    await ask(instances[0]);
    const { default: postgres } = await import('postgres');
    const sql = postgres(databaseUrl, { max: 1 });
    const held = await sql.reserve();
    await held`BEGIN`;
    await held`SELECT FROM rate_limits FOR UPDATE`;
    const all = await flood(2, 50);
    await held`ROLLBACK`;
    held.release();
    await sql.end();
    expect(statusesOf(all)).toEqual([200, 429]);
    expect(mostInASecond(all)).toBeLessThanOrEqual(10);
    expect(await lateDecisions()).toBe(0);
    await pause(3100);
    expect(countOf(await Promise.all(Array.from({ length: 20 }, () => ask(instances[0]))), 200)).toBe(10);
  });
});
