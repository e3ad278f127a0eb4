import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'drizzle-orm';
import request from 'supertest';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Service } from '../../../src/service/server.js';
import { connectTo } from '../../support/connection.js';
import { listenOn } from '../../support/listening.js';
import { expectDescribed, problemOf } from '../../support/response.js';
import { useService } from '../../support/service.js';
import { withinASecond } from '../../support/withinASecond.js';

const PATH = '/v1/brandedPhoneNumbers';
const first = useService({ RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: '1' });
let second: Service;
let clients = 0;

beforeAll(async () => {
  second = await listenOn(first.databaseUrl, { RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: '1' });
});
afterAll(() => second.close());

const statusesOf = async (requests: PromiseLike<{ status: number }>[]) =>
  (await Promise.all(requests)).map(({ status }) => status);

/** A client that neither instance has seen yet. */
function newClient() {
  const address = `203.0.113.${++clients}`;
  const get = (target: Parameters<typeof request>[0], search: string) =>
    request(target).get(`${PATH}${search}`).set('X-Forwarded-For', address);
  return { askFirst: (search = '') => get(first.app, search), askSecond: (search = '') => get(second.url, search) };
}

describe('the rate limit of requests without a page', () => {
  it('counts a request that gets a 405 like any other', async () => {
    const left = await withinASecond(async () => {
      const address = `203.0.113.${++clients}`;
      const post = () => request(first.app).post(PATH).set('X-Forwarded-For', address);
      const all = [];
      for (let i = 0; i < 11; i++) all.push(await post());
      return all.map((response) => [response.status, response.get('RateLimit')]);
    });
    const counted = Array.from({ length: 10 }, (_, i) => [405, `"default";r=${9 - i};t=1`]);
    expect(left).toEqual([...counted, [429, '"default";r=0;t=1']]);
  });

  describe('a 503', () => {
    const busy = useService({ RATE_LIMIT_PER_SECOND: '10', MAX_REQUESTS_IN_FLIGHT: '1' });
    it('is counted under overload, and says when to retry', async () => {
      const holder = connectTo(busy.databaseUrl);
      const responses = await holder.begin(async (held) => {
        await held`LOCK items IN ACCESS EXCLUSIVE MODE`;
        return Promise.all(Array.from({ length: 8 }, () => request(busy.app).get(PATH)));
      });
      await holder.end();
      const refused = responses.filter(({ body }) => body.detail.startsWith('Too many requests'));
      expect(refused.length).toBeGreaterThan(0);
      for (const response of refused) {
        expectDescribed(response);
        expect(response.get('RateLimit')).toMatch(/^"default";r=[2-9];t=1$/);
        expect(response.get('Retry-After')).toBe('1');
        expect(response.get('RateLimit-Policy')).toBe('"default";q=10;w=1');
      }
    });

    const keyed = useService({ RATE_LIMIT_PER_SECOND: '10', AUTH: 'api-key' });
    it('says that no requests are left until Retry-After if a key can’t be looked up', async () => {
      await keyed.database.execute(sql`ALTER TABLE api_keys RENAME TO hidden`);
      const response = await request(keyed.app)
        .get(PATH)
        .set('Authorization', `bpn_${'a'.repeat(43)}`);
      await keyed.database.execute(sql`ALTER TABLE hidden RENAME TO api_keys`);
      expectDescribed(response);
      const retry = response.get('Retry-After');
      expect([response.status, response.get('RateLimit')]).toEqual([503, `"default";r=0;t=${retry}`]);
    });
  });
});

describe('the rate limit', () => {
  it('allows exactly 10 of 50 simultaneous requests, over two instances', async () => {
    const statuses = await withinASecond(() => {
      const { askFirst, askSecond } = newClient();
      return statusesOf(Array.from({ length: 50 }, (_, i) => (i % 2 ? askFirst() : askSecond())));
    });
    expect(statuses.filter((status) => status === 200)).toHaveLength(10);
    expect(statuses.filter((status) => status === 429)).toHaveLength(40);
  });

  it('gives the requests left in each response, and Retry-After if it refuses one', async () => {
    const outcomes = await withinASecond(async () => {
      const { askFirst } = newClient();
      const all = [];
      for (let left = 9; left >= -1; left--) all.push(await askFirst(left % 2 ? '?size=0' : ''));
      return all;
    });
    const refused = outcomes.pop();
    outcomes.forEach((response, i) => {
      expectDescribed(response);
      expect(response.get('RateLimit-Policy')).toBe('"default";q=10;w=1');
      expect(response.get('RateLimit')).toBe(`"default";r=${9 - i};t=1`);
    });
    if (!refused) throw new Error('there is no last response');
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

  it('gives the requests left in a 304', async () => {
    const response = await withinASecond(async () => {
      const { askFirst } = newClient();
      const etag = (await askFirst()).get('ETag') ?? '';
      return askFirst().set('If-None-Match', etag);
    });
    expect([response.status, response.get('RateLimit')]).toEqual([304, '"default";r=8;t=1']);
  });

  it('allows a client another request one second after its oldest one, not at the edge of a window', async () => {
    const burst = async () => {
      const { askFirst, askSecond } = newClient();
      await askFirst();
      const counted = performance.now();
      await sleep(500);
      const nine = await statusesOf(Array.from({ length: 9 }, () => askFirst()));
      const refused = (await askFirst()).status;
      // A burst that is late by now is made too long, so that it is repeated.
      await sleep(performance.now() < counted + 1000 ? counted + 1001 - performance.now() : 500);
      // Only the first of the ten is more than a second old now.
      const later = await statusesOf([askFirst(), askFirst(), askSecond()]);
      return { nine, refused, later: later.sort() };
    };
    const statuses = await withinASecond(burst, { limitMs: 1500 });
    expect(statuses).toEqual({ nine: Array(9).fill(200), refused: 429, later: [200, 429, 429] });
  });

  it('does not count refused requests, so that a client that never pauses gets 10 in each second by the store’s clock', async () => {
    await first.database.execute(sql`
      CREATE TABLE counted (at timestamptz NOT NULL);
      CREATE FUNCTION record() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        INSERT INTO counted SELECT unnest(NEW.requests) EXCEPT ALL SELECT unnest(OLD.requests);
        RETURN NULL;
      END $$;
      CREATE TRIGGER record AFTER INSERT OR UPDATE ON rate_limits FOR EACH ROW EXECUTE FUNCTION record()`);
    const { askFirst, askSecond } = newClient();
    let passed = 0;
    const begin = performance.now();
    const end = begin + 2500;
    const asking = async (ask: () => PromiseLike<{ status: number }>) => {
      for (; performance.now() < end; await sleep(Math.random() * 30)) {
        if ((await ask()).status === 200) passed++;
      }
    };
    await Promise.all([askFirst, askSecond, askFirst, askSecond, askFirst, askSecond].map((ask) => asking(ask)));
    const [row] = await first.database.execute<{ most: number; all: number }>(sql`
      SELECT max(n)::int AS most, count(*)::int AS all FROM (
        SELECT count(*) OVER (ORDER BY at RANGE BETWEEN interval '999.999 milliseconds' PRECEDING AND CURRENT ROW) AS n FROM counted
      ) AS windows`);
    expect(row?.most).toBe(10);
    // Two seconds hold two times ten, and the ten of the moment at which they begin.
    expect(row?.all).toBeGreaterThanOrEqual(20);
    expect(passed).toBeGreaterThanOrEqual(20);
    expect(passed).toBeLessThanOrEqual(10 * (1 + Math.ceil((performance.now() - begin) / 1000)));
  });

  it('does not count requests to other paths', async () => {
    const { askFirst } = newClient();
    for (const path of ['/healthz', '/nope', '/openapi.json']) {
      await request(first.app).get(path).set('X-Forwarded-For', `203.0.113.${clients}`);
    }
    expect((await askFirst()).get('RateLimit')).toBe('"default";r=9;t=1');
  });
});

describe('RATE_LIMIT_PER_SECOND=0', () => {
  const unlimited = useService({ RATE_LIMIT_PER_SECOND: '0' });
  it('refuses nothing and sends no headers about the limit', async () => {
    const responses = await Promise.all(Array.from({ length: 30 }, () => request(unlimited.app).get(PATH)));
    expect(responses.map(({ status }) => status)).toEqual(Array(30).fill(200));
    expect(responses[0]?.get('RateLimit')).toBeUndefined();
  });
});
