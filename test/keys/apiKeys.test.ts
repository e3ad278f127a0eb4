import { setTimeout as sleep } from 'node:timers/promises';
import request from 'supertest';
import { beforeAll, describe, expect, it } from 'vitest';
import type { BusinessProfile } from '../../generated/types/models/index.js';
import { apiKeys } from '../../src/database/schema.js';
import { createApiKey, revokeApiKeys } from '../../src/keys/keys.js';
import { numberWith, PROFILES, write } from '../support/numbers.js';
import { expectDescribed } from '../support/response.js';
import { useService } from '../support/service.js';
import { withinASecond } from '../support/withinASecond.js';

const PATH = '/v1/brandedPhoneNumbers';
const service = useService({ AUTH: 'api-key', RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: '1' });

const [FIRST_PROFILE, SECOND_PROFILE] = PROFILES as [BusinessProfile, BusinessProfile];
const NUMBERS = ['+14155550101', '+14155550102', '+14155550103', '+14155550104'];

let address = 0;
/** Sends a request, from a new address unless `from` is given. */
const get = (authorization?: string, search = '', from = `198.51.100.${++address % 250}`) => {
  const sent = request(service.url).get(`${PATH}${search}`).set('X-Forwarded-For', from);
  return authorization === undefined ? sent : sent.set('Authorization', authorization);
};

const numbersOf = ({ body }: { body: { items: { phoneNumber: string }[] } }) =>
  body.items.map(({ phoneNumber }) => phoneNumber);

let key: string;
let limitedKey: string;
/** Creates a key, whose rate limit is unused. */
const newKey = async (name: string, options = {}) => (await createApiKey(service.database, name, options)).key;
const toFirstProfile = { businessProfileIds: [FIRST_PROFILE.id] };

beforeAll(async () => {
  const numbers = NUMBERS.map((phoneNumber, i) =>
    numberWith({ phoneNumber, businessProfile: i % 2 ? SECOND_PROFILE : FIRST_PROFILE }),
  );
  await write(service.database, numbers);
  key = await newKey('all');
  limitedKey = await newKey('first profile only', toFirstProfile);
});

describe('GET /v1/brandedPhoneNumbers with AUTH=api-key', () => {
  it.each(['', 'Bearer ', 'bearer '])('accepts a key after "%s"', async (scheme) => {
    const response = await get(`${scheme}${key}`);
    expect([response.status, numbersOf(response)]).toEqual([200, NUMBERS]);
  });

  it.each([
    ['no key', () => undefined],
    ['a malformed key', () => 'Bearer bpn_short'],
    ['a key with a wrong last character', () => `Bearer ${key.slice(0, -1)}${key.endsWith('A') ? 'B' : 'A'}`],
  ])('responds with 401 and WWW-Authenticate to %s', async (_name, authorization) => {
    const response = await get(authorization());
    expectDescribed(response);
    expect([response.status, response.body.type]).toEqual([401, '/problems/unauthorized']);
    expect(response.get('WWW-Authenticate')).toBe('Bearer realm="branded-phone-numbers"');
    expect(response.get('RateLimit')).toBe('"default";r=9;t=1');
  });

  it('requires no key for health and the OpenAPI document', async () => {
    for (const path of ['/healthz', '/readyz', '/openapi.json']) {
      expect((await request(service.url).get(path)).status).toBe(200);
    }
  });
});

describe('the rate limit with AUTH=api-key', () => {
  const statusesOf12 = (send: typeof get) =>
    withinASecond(async () => {
      const responses = await Promise.all(Array.from({ length: 12 }, () => send()));
      return responses.map(({ status }) => status).sort();
    });

  it('counts requests by key, whatever their addresses', async () => {
    const busy = await newKey('busy');
    expect(await statusesOf12(() => get(busy))).toEqual([...Array(10).fill(200), 429, 429]);
    expect((await get(await newKey('quiet'))).status).toBe(200);
  });

  it('counts requests with invalid keys by their address, and allows valid keys from the same address', async () => {
    const good = await newKey('good');
    expect((await get(good)).status).toBe(200);
    const sendInvalid = () => get(`bpn_${'B'.repeat(43)}`, '', '192.0.2.1');
    expect(await statusesOf12(sendInvalid)).toEqual([...Array(10).fill(401), 429, 429]);
    expect((await get(good, '', '192.0.2.1')).status).toBe(200);
  });
});

describe('a key limited to a business profile', () => {
  it('gets only the numbers of that profile, whatever the filter', async () => {
    const visible = [NUMBERS[0], NUMBERS[2]];
    expect(numbersOf(await get(limitedKey))).toEqual(visible);
    expect(numbersOf(await get(limitedKey, `?businessProfileId=${SECOND_PROFILE.id}`))).toEqual([]);
    expect(numbersOf(await get(limitedKey, `?phoneNumber=${encodeURIComponent(NUMBERS[1] ?? '')}`))).toEqual([]);
    expect(numbersOf(await get(limitedKey, '?status=unregistered'))).toEqual(visible);
  });

  it('gets only the numbers of that profile with the cursor of an unlimited key', async () => {
    const { body } = await get(await newKey('unlimited'), '?size=1');
    expect(numbersOf(await get(limitedKey, `?size=100&nextCursor=${body.nextCursor}`))).toEqual([NUMBERS[2]]);
  });
});

describe('an API key', () => {
  it('is stored only as a hash', async () => {
    expect(JSON.stringify(await service.database.select().from(apiKeys))).not.toContain(key);
  });

  /** Uses a key until it is rejected; returns when the last accepted request was sent, and the rejection. */
  async function untilRejected(key: string) {
    for (let lastAccepted = 0, end = Date.now() + 10_000; ; await sleep(120)) {
      const sent = Date.now();
      const response = await get(key);
      if (response.status !== 200 || sent > end) return { lastAccepted, response };
      lastAccepted = sent;
    }
  }

  it('is rejected within 5 seconds after it was revoked, even if it is cached', async () => {
    const { key, created } = await createApiKey(service.database, 'revoked');
    expect((await get(key)).status).toBe(200);
    expect(await revokeApiKeys(service.database, [created.id])).toEqual([created.id]);
    expect(await revokeApiKeys(service.database, [created.id])).toEqual([]);
    const revoked = Date.now();
    const { lastAccepted, response } = await untilRejected(key);
    // By the look-up in the background two seconds after the first one; only if that fails, after five.
    expect(lastAccepted).toBeLessThan(revoked + 4000);
    expect(response.status).toBe(401);
  });

  it('is rejected once it has expired, even if it is cached, and the response says so', async () => {
    const expiresAt = new Date(Date.now() + 2500);
    const { key } = await createApiKey(service.database, 'expiring', { expiresAt });
    const { lastAccepted, response } = await untilRejected(key);
    expect(lastAccepted).toBeGreaterThan(0);
    expect(lastAccepted).toBeLessThanOrEqual(expiresAt.getTime());
    expect(response.status).toBe(401);
    expect(response.body.detail).toContain(`expired at ${expiresAt.toISOString()}`);
  });
});
