import { sql } from 'drizzle-orm';
import request from 'supertest';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { readConfig } from '../src/config.js';
import { openLog } from '../src/log.js';
import { type Service, startService } from '../src/server.js';
import { expectDescribed, problemOf } from './answer.js';
import { useService } from './service.js';

const PATH = '/v1/brandedPhoneNumbers';
// Two instances on one database, as in production: real servers on real ports, and one behind supertest.
const first = useService({ RATE_LIMIT_PER_SECOND: '10' });
let second: Service;

beforeAll(async () => {
  const config = readConfig({ PORT: '0', LOG_LEVEL: 'silent', TRUST_PROXY: '1' });
  second = await startService(config, first.databaseUrl, openLog(config));
});
afterAll(() => second.close());
// What a client has used up, in the store and in the memory of both instances, is forgotten after a second.
beforeEach(() => pause(1050));

const getFirst = (search = '') => request(first.app).get(`${PATH}${search}`);
const getSecond = (search = '') => request(second.url).get(`${PATH}${search}`);
const statusesOf = async (requests: PromiseLike<{ status: number }>[]) =>
  (await Promise.all(requests)).map(({ status }) => status);
const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

describe('the rate limit', () => {
  it('lets 10 requests through and refuses the 11th, over two instances', async () => {
    const statuses = [];
    for (let i = 0; i < 11; i++) statuses.push((await (i % 2 ? getFirst() : getSecond())).status);
    expect(statuses).toEqual([...Array(10).fill(200), 429]);
  });

  it('lets exactly 10 of 50 at once through, over two instances', async () => {
    const statuses = await statusesOf(Array.from({ length: 50 }, (_, i) => (i % 2 ? getFirst() : getSecond())));
    expect(statuses.filter((status) => status === 200)).toHaveLength(10);
    expect(statuses.filter((status) => status === 429)).toHaveLength(40);
  });

  it('says what is left on every answer, and when to come back on the refusal', async () => {
    for (let left = 9; left >= 0; left--) {
      const response = await getFirst(left % 2 ? '?size=0' : '');
      expectDescribed(response);
      expect(response.get('RateLimit-Policy')).toBe('"default";q=10;w=1');
      expect(response.get('RateLimit')).toBe(`"default";r=${left};t=1`);
    }
    const refused = await getFirst();
    expectDescribed(refused);
    expect(refused.status).toBe(429);
    expect(refused.get('Retry-After')).toBe('1');
    expect(refused.get('RateLimit')).toBe('"default";r=0;t=1');
    expect(problemOf(refused)).toEqual({
      type: '/problems/rate-limit-exceeded',
      title: 'Rate Limit Exceeded',
      status: 429,
      detail: 'At most 10 requests in any one second. Try again in 1 second.',
      message: 'Rate Limit Exceeded',
    });
  });

  it('says what is left on a 304 as well', async () => {
    const etag = (await getFirst()).get('ETag') ?? '';
    const response = await getFirst().set('If-None-Match', etag);
    expect([response.status, response.get('RateLimit')]).toEqual([304, '"default";r=8;t=1']);
  });

  it('counts requests refused with 400', async () => {
    await Promise.all(Array.from({ length: 10 }, () => getFirst('?size=0')));
    expect((await getFirst()).status).toBe(429);
  });

  it('does not count refused requests: a client that never pauses gets its 10 in every second', async () => {
    const passed: number[] = [];
    const end = performance.now() + 3000;
    while (performance.now() < end) {
      const { status } = await (passed.length % 2 ? getFirst() : getSecond());
      if (status === 200) passed.push(performance.now());
    }
    // Three seconds hold three times ten, and the ten of the moment at which they begin.
    expect(passed.length).toBeGreaterThanOrEqual(30);
    expect(passed.length).toBeLessThanOrEqual(40);
  });

  it('lets a client through again a second after its oldest request, not at the edge of a window', async () => {
    await getFirst();
    await pause(600);
    expect(await statusesOf(Array.from({ length: 9 }, () => getFirst()))).toEqual(Array(9).fill(200));
    expect((await getFirst()).status).toBe(429);
    await pause(500);
    // Only the first of the ten is more than a second old now.
    const statuses = await statusesOf([getFirst(), getFirst(), getSecond()]);
    expect(statuses.sort()).toEqual([200, 429, 429]);
  });

  it('never counts more than 10 in any sliding second, by the store’s own clock', async () => {
    await first.database.execute(sql`
      CREATE TABLE counted (at timestamptz NOT NULL);
      CREATE FUNCTION record() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN IF NEW.allowed AND NEW.client NOT LIKE 'instance:%' THEN INSERT INTO counted VALUES (NEW.requests[cardinality(NEW.requests)]); END IF; RETURN NULL; END $$;
      CREATE TRIGGER record AFTER INSERT OR UPDATE ON rate_limits FOR EACH ROW EXECUTE FUNCTION record()`);
    const end = performance.now() + 3500;
    const client = async (get: () => PromiseLike<unknown>) => {
      while (performance.now() < end) {
        await get();
        await pause(Math.random() * 30);
      }
    };
    await Promise.all(
      [getFirst, getSecond, getFirst, getSecond, getFirst, getSecond].map((get) => client(() => get())),
    );
    const [row] = await first.database.execute<{ most: number; all: number }>(sql`
      SELECT max(n)::int AS most, count(*)::int AS all FROM (
        SELECT count(*) OVER (ORDER BY at RANGE BETWEEN interval '999.999 milliseconds' PRECEDING AND CURRENT ROW) AS n FROM counted
      ) AS windows`);
    expect(row?.most).toBe(10);
    expect(row?.all).toBeGreaterThanOrEqual(30);
  });

  it('counts each client address by itself, and IPv6 by its network', async () => {
    const from = (address: string) => getSecond().set('X-Forwarded-For', address);
    await Promise.all(Array.from({ length: 10 }, () => from('203.0.113.1')));
    expect((await from('203.0.113.1')).status).toBe(429);
    expect((await from('203.0.113.2')).status).toBe(200);
    await Promise.all(Array.from({ length: 10 }, (_, i) => from(`2001:db8::${i}`)));
    expect((await from('2001:db8:0:0:ffff::1')).status).toBe(429);
    expect((await from('2001:db8:0:1::1')).status).toBe(200);
  });

  it('counts nothing but the operation', async () => {
    for (const path of ['/healthz', '/nope', '/openapi.json'])
      await Promise.all(Array.from({ length: 12 }, () => request(first.app).get(path)));
    await Promise.all(Array.from({ length: 12 }, () => request(first.app).post(PATH)));
    expect((await getFirst()).get('RateLimit')).toBe('"default";r=9;t=1');
  });
});

describe('a limit of 0', () => {
  const unlimited = useService({ RATE_LIMIT_PER_SECOND: '0' });
  it('refuses nothing and says nothing', async () => {
    const responses = await Promise.all(Array.from({ length: 30 }, () => request(unlimited.app).get(PATH)));
    expect(responses.map(({ status }) => status)).toEqual(Array(30).fill(200));
    expect(responses[0]?.get('RateLimit')).toBeUndefined();
  });
});
