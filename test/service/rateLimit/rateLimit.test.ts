import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'drizzle-orm';
import request from 'supertest';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Service } from '../../../src/service/server.js';
import { whileLocked } from '../../support/connection.js';
import { expectDescribed } from '../../support/response.js';
import { listenOn, useService } from '../../support/service.js';
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

/** Returns requests of a client that neither instance has counted yet. */
function newClient() {
  const address = `203.0.113.${++clients}`;
  const get = (target: Parameters<typeof request>[0], search: string) =>
    request(target).get(`${PATH}${search}`).set('X-Forwarded-For', address);
  return {
    getFromFirst: (search = '') => get(first.url, search),
    getFromSecond: (search = '') => get(second.url, search),
    postToFirst: () => request(first.url).post(PATH).set('X-Forwarded-For', address),
  };
}

describe('a 503', () => {
  const busy = useService({ RATE_LIMIT_PER_SECOND: '10', DATABASE_CONNECTIONS: '1' });
  it('counts towards the limit and has Retry-After if the service is overloaded', async () => {
    const responses = await whileLocked(busy.databaseUrl, 'LOCK items', () =>
      Promise.all(Array.from({ length: 8 }, () => request(busy.url).get(PATH))),
    );
    const rejected = responses.filter(({ body }) => body.detail.startsWith('Too many requests'));
    expect(rejected.length).toBeGreaterThan(0);
    for (const response of rejected) {
      expectDescribed(response);
      expect(response.get('RateLimit')).toMatch(/^"default";r=[2-9];t=1$/);
      expect(response.get('Retry-After')).toBe('1');
      expect(response.get('RateLimit-Policy')).toBe('"default";q=10;w=1');
    }
  });

  const keyed = useService({ RATE_LIMIT_PER_SECOND: '10', AUTH: 'api-key' });
  it('has no remaining requests until Retry-After if the key could not be looked up', async () => {
    await keyed.database.execute(sql`ALTER TABLE api_keys RENAME TO hidden`);
    const response = await request(keyed.url)
      .get(PATH)
      .set('Authorization', `bpn_${'a'.repeat(43)}`);
    await keyed.database.execute(sql`ALTER TABLE hidden RENAME TO api_keys`);
    expectDescribed(response);
    const retry = response.get('Retry-After');
    expect([response.status, response.get('RateLimit')]).toEqual([503, `"default";r=0;t=${retry}`]);
  });
});

describe('the rate limit', () => {
  it('allows exactly 10 of 50 simultaneous requests to two instances', async () => {
    const statuses = await withinASecond(() => {
      const { getFromFirst, getFromSecond } = newClient();
      return statusesOf(Array.from({ length: 50 }, (_, i) => (i % 2 ? getFromFirst() : getFromSecond())));
    });
    expect(statuses.sort()).toEqual([...Array(10).fill(200), ...Array(40).fill(429)]);
  });

  it('gives the remaining requests in a 200, 304, 400, 405 and 429, and Retry-After in the 429', async () => {
    const responses = await withinASecond(async () => {
      const { getFromFirst, postToFirst } = newClient();
      const [page, invalid] = [await getFromFirst(), await getFromFirst('?size=0')];
      const notModified = await getFromFirst().set('If-None-Match', page.get('ETag') ?? '');
      const responses = [page, invalid, notModified];
      while (responses.length < 11) responses.push(await postToFirst());
      return responses;
    });
    const statuses = [200, 400, 304, ...Array(7).fill(405), 429];
    expect(responses.map(({ status }) => status)).toEqual(statuses);
    const remaining = [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0];
    for (const [i, response] of responses.entries()) {
      expectDescribed(response);
      expect(response.get('RateLimit-Policy')).toBe('"default";q=10;w=1');
      expect(response.get('RateLimit')).toBe(`"default";r=${remaining[i]};t=1`);
    }
    expect(responses.at(-1)?.get('Retry-After')).toBe('1');
  });

  it('allows another request one second after the oldest one, not at the start of a fixed window', async () => {
    const burst = async () => {
      const { getFromFirst, getFromSecond } = newClient();
      await getFromFirst();
      const counted = performance.now();
      await sleep(500);
      const nine = await statusesOf(Array.from({ length: 9 }, () => getFromFirst()));
      const refused = (await getFromFirst()).status;
      // On a slow machine, the extra wait makes withinASecond repeat the burst.
      await sleep(performance.now() < counted + 1000 ? counted + 1001 - performance.now() : 500);
      // Only the first of the ten is more than a second old now.
      const later = await statusesOf([getFromFirst(), getFromFirst(), getFromSecond()]);
      return { nine, refused, later: later.sort() };
    };
    const statuses = await withinASecond(burst, { limitMs: 1500 });
    expect(statuses).toEqual({ nine: Array(9).fill(200), refused: 429, later: [200, 429, 429] });
  });

  it('does not count requests to other paths', async () => {
    const { getFromFirst } = newClient();
    for (const path of ['/healthz', '/nope', '/openapi.json']) {
      await request(first.url).get(path).set('X-Forwarded-For', `203.0.113.${clients}`);
    }
    expect((await getFromFirst()).get('RateLimit')).toBe('"default";r=9;t=1');
  });
});

const unlimited = useService({ RATE_LIMIT_PER_SECOND: '0' });
it('RATE_LIMIT_PER_SECOND=0 refuses no requests and sends no RateLimit header', async () => {
  const responses = await Promise.all(Array.from({ length: 30 }, () => request(unlimited.url).get(PATH)));
  expect(responses.map(({ status }) => status)).toEqual(Array(30).fill(200));
  expect(responses[0]?.get('RateLimit')).toBeUndefined();
});
