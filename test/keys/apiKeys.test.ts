import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'drizzle-orm';
import request from 'supertest';
import { beforeAll, describe, expect, it } from 'vitest';
import { apiKeys, brandedPhoneNumbers, businessProfiles } from '../../src/database/schema.js';
import { createApiKey, listApiKeys, revokeApiKey } from '../../src/keys/keys.js';
import { useService } from '../support/service.js';
import { withinASecond } from '../support/withinASecond.js';

const PATH = '/v1/brandedPhoneNumbers';
const service = useService({ AUTH: 'api-key', RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: '1' });

const PROFILES = ['6513270e-269e-4d37-b2a7-4de452e6b438', '5d9dc9f8-1818-4811-892f-902bd23f0824'] as const;
const NUMBERS = ['+14155550101', '+14155550102', '+14155550103', '+14155550104'];

let address = 0;
/** Every request from a different address, unless one is given: what is counted here is counted by key. */
const get = (authorization?: string, search = '', from = `198.51.100.${++address % 250}`) => {
  const sent = request(service.app).get(`${PATH}${search}`).set('X-Forwarded-For', from);
  return authorization === undefined ? sent : sent.set('Authorization', authorization);
};

const numbersOf = ({ body }: { body: { items: { phoneNumber: string }[] } }) =>
  body.items.map(({ phoneNumber }) => phoneNumber);

let key: string;
let scoped: string;
/** A key that has used none of its limit yet. */
const newKey = async (name: string, options = {}) => (await createApiKey(service.database, name, options)).key;
const toFirstProfile = { businessProfileIds: [PROFILES[0]] };

beforeAll(async () => {
  const { database } = service;
  await database
    .insert(businessProfiles)
    .values(PROFILES.map((id) => ({ id, businessName: `Business ${id}`, status: 'approved' })));
  await database
    .insert(brandedPhoneNumbers)
    .values(NUMBERS.map((phoneNumber, i) => ({ phoneNumber, businessProfileId: PROFILES[i % 2] ?? PROFILES[0] })));
  key = await newKey('all');
  scoped = await newKey('first profile only', toFirstProfile);
});

describe('GET /v1/brandedPhoneNumbers with AUTH=api-key', () => {
  it.each(['', 'Bearer ', 'bearer '])('accepts a key after "%s"', async (scheme) => {
    const response = await get(`${scheme}${key}`);
    expect([response.status, numbersOf(response)]).toEqual([200, NUMBERS]);
  });

  it.each([
    ['no key', undefined],
    ['an empty header', ''],
    ['something else', 'Basic dXNlcjpzZWNyZXQ='],
    ['a key that was never made', `Bearer bpn_${'A'.repeat(43)}`],
    ['a damaged key', 'Bearer bpn_short'],
  ])('responds with 401 and says how to send a key if there is %s', async (_what, authorization) => {
    const response = await get(authorization);
    expect(response.status).toBe(401);
    expect(response.type).toBe('application/problem+json');
    expect(response.body).toMatchObject({ type: '/problems/unauthorized', title: 'Unauthorized', status: 401 });
    expect(response.get('WWW-Authenticate')).toBe('Bearer realm="branded-phone-numbers"');
    expect(response.get('RateLimit')).toBe('"default";r=9;t=1');
  });

  it('responds with 401 if the last character of a key is wrong', async () => {
    const other = key.slice(0, -1) + (key.endsWith('A') ? 'B' : 'A');
    expect((await get(`Bearer ${other}`)).status).toBe(401);
  });

  it('serves health and documentation without a key', async () => {
    for (const path of ['/healthz', '/readyz', '/openapi.json']) {
      expect((await request(service.app).get(path)).status).toBe(200);
    }
  });
});

describe('the rate limit with AUTH=api-key', () => {
  it('counts each key, from whatever address it is sent', async () => {
    const busy = await newKey('busy');
    const together = await withinASecond(() => Promise.all(Array.from({ length: 12 }, () => get(busy))));
    expect(together.filter(({ status }) => status === 200)).toHaveLength(10);
    expect((await get(await newKey('quiet'))).status).toBe(200);
  });

  it('counts requests with invalid keys by their address, and allows valid keys from the same address', async () => {
    const good = await newKey('good');
    expect((await get(good)).status).toBe(200);
    const wrong = () => get(`bpn_${'B'.repeat(43)}`, '', '192.0.2.1');
    const outcomes = await withinASecond(() => Promise.all(Array.from({ length: 12 }, wrong)));
    const statuses = outcomes.map(({ status }) => status);
    expect(statuses.filter((status) => status === 401)).toHaveLength(10);
    expect(statuses.filter((status) => status === 429)).toHaveLength(2);
    expect((await get(good, '', '192.0.2.1')).status).toBe(200);
  });
});

describe('a key limited to a business profile', () => {
  it('sees only the numbers of that profile, whatever the filter', async () => {
    const own = [NUMBERS[0], NUMBERS[2]];
    const scoped = await newKey('scoped', toFirstProfile);
    expect(numbersOf(await get(scoped))).toEqual(own);
    expect(numbersOf(await get(scoped, `?businessProfileId=${PROFILES[1]}`))).toEqual([]);
    expect(numbersOf(await get(scoped, `?phoneNumber=${encodeURIComponent(NUMBERS[1] ?? '')}`))).toEqual([]);
    expect(numbersOf(await get(scoped, '?status=unregistered'))).toEqual(own);
  });

  it('sees no more if it sends the cursor of an unlimited key', async () => {
    const { body } = await get(await newKey('sees all'), '?size=1');
    expect(numbersOf(await get(scoped, `?size=100&nextCursor=${body.nextCursor}`))).toEqual([NUMBERS[2]]);
  });
});

describe('an API key', () => {
  it('is stored only as a hash, which is not listed', async () => {
    const rows = await service.database.select().from(apiKeys);
    expect(JSON.stringify(rows)).not.toContain(key);
    const listed = await listApiKeys(service.database);
    expect(listed.length).toBeGreaterThanOrEqual(2);
    expect(JSON.stringify(listed)).not.toContain(rows[0]?.hash);
    expect(listed[1]).toMatchObject({ name: 'first profile only', businessProfileIds: [PROFILES[0]], revokedAt: null });
  });

  it('stops working within 5 seconds after it was revoked, even if it is cached', async () => {
    const {
      key: doomed,
      created: { id },
    } = await createApiKey(service.database, 'doomed');
    expect((await get(doomed)).status).toBe(200);
    expect(await revokeApiKey(service.database, id)).toMatchObject({ id, state: 'revoked' });
    expect(await revokeApiKey(service.database, id)).toBeUndefined();
    const revoked = performance.now();
    const sentAfter = () => performance.now() - revoked;
    let lastGood = 0;
    for (let sent = 0; sent < 7000; await sleep(150)) {
      sent = sentAfter();
      if ((await get(doomed)).status !== 200) break;
      lastGood = sent;
    }
    expect(lastGood).toBeLessThan(5000);
    expect((await get(doomed)).status).toBe(401);
  });

  it('stops working at the moment it expires, even if it is cached, and the response says so', async () => {
    const { key: brief, created } = await createApiKey(service.database, 'brief', {
      expiresAt: new Date(Date.now() + 2500),
    });
    const expiry = Date.parse(created.expiresAt ?? '');
    let lastGood = 0;
    let refused: Awaited<ReturnType<typeof get>>;
    do {
      const sent = Date.now();
      refused = await get(brief);
      if (refused.status === 200) lastGood = sent;
      await sleep(120);
    } while (refused.status === 200 && Date.now() < expiry + 3000);
    expect(lastGood).toBeGreaterThan(0);
    expect(lastGood).toBeLessThanOrEqual(expiry);
    expect(refused.status).toBe(401);
    expect(refused.body.detail).toContain(`expired at ${created.expiresAt}`);
  });

  it('is not looked up for every request', async () => {
    const key = await newKey('remembered');
    await get(key);
    // Lookups of the tests before are reported within a second.
    await sleep(1100);
    const [before] = await service.database.execute<{ n: string }>(
      sql`SELECT pg_stat_clear_snapshot(), idx_scan AS n FROM pg_stat_user_indexes WHERE indexrelname = 'api_keys_hash_unique'`,
    );
    for (let i = 0; i < 8; i++) await get(key);
    await sleep(1100);
    const [after] = await service.database.execute<{ n: string }>(
      sql`SELECT pg_stat_clear_snapshot(), idx_scan AS n FROM pg_stat_user_indexes WHERE indexrelname = 'api_keys_hash_unique'`,
    );
    expect(Number(after?.n) - Number(before?.n)).toBeLessThanOrEqual(4);
  });
});
