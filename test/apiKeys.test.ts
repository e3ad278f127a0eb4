import { execFile } from 'node:child_process';
import { Writable } from 'node:stream';
import { promisify } from 'node:util';
import { sql } from 'drizzle-orm';
import { pino } from 'pino';
import request from 'supertest';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createApiKey, listApiKeys, revokeApiKey } from '../src/apiKeys.js';
import { readConfig } from '../src/config.js';
import { apiKeys, brandedPhoneNumbers, businessProfiles } from '../src/schema.js';
import { type Service, startService } from '../src/server.js';
import { useService } from './service.js';

const PATH = '/v1/brandedPhoneNumbers';
const service = useService({ AUTH: 'api-key', RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: '1' });
const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

const PROFILES = ['6513270e-269e-4d37-b2a7-4de452e6b438', '5d9dc9f8-1818-4811-892f-902bd23f0824'] as const;
const NUMBERS = ['+14155550101', '+14155550102', '+14155550103', '+14155550104'];

let address = 0;
/** Every request from an address of its own, unless one is given: what is counted here is counted by key. */
const get = (authorization?: string, search = '', from = `198.51.100.${++address % 250}`) => {
  const sent = request(service.app).get(`${PATH}${search}`).set('X-Forwarded-For', from);
  return authorization === undefined ? sent : sent.set('Authorization', authorization);
};

const numbersOf = ({ body }: { body: { items: { phoneNumber: string }[] } }) =>
  body.items.map(({ phoneNumber }) => phoneNumber);

let key: string;
let scoped: string;

beforeAll(async () => {
  const { database } = service;
  await database
    .insert(businessProfiles)
    .values(PROFILES.map((id) => ({ id, businessName: `Business ${id}`, status: 'approved' })));
  await database
    .insert(brandedPhoneNumbers)
    .values(NUMBERS.map((phoneNumber, i) => ({ phoneNumber, businessProfileId: PROFILES[i % 2] ?? PROFILES[0] })));
  ({ key } = await createApiKey(database, 'all', null));
  ({ key: scoped } = await createApiKey(database, 'first profile only', [PROFILES[0]]));
});
beforeEach(() => pause(1050));

describe('a request', () => {
  it.each(['', 'Bearer ', 'bearer '])('with its key behind "%s" is answered', async (scheme) => {
    const response = await get(`${scheme}${key}`);
    expect([response.status, numbersOf(response)]).toEqual([200, NUMBERS]);
  });

  it.each([
    ['no key', undefined],
    ['an empty header', ''],
    ['something else', 'Basic dXNlcjpzZWNyZXQ='],
    ['a key that was never made', `Bearer bpn_${'A'.repeat(43)}`],
    ['a damaged key', 'Bearer bpn_short'],
  ])('with %s is 401 and told how to send one', async (_what, authorization) => {
    const response = await get(authorization);
    expect(response.status).toBe(401);
    expect(response.type).toBe('application/problem+json');
    expect(response.body).toMatchObject({ type: '/problems/unauthorized', title: 'Unauthorized', status: 401 });
    expect(response.get('WWW-Authenticate')).toBe('Bearer realm="branded-phone-numbers"');
    expect(response.get('RateLimit')).toBe('"default";r=9;t=1');
  });

  it('with a key that differs in its last character is 401', async () => {
    const other = key.slice(0, -1) + (key.endsWith('A') ? 'B' : 'A');
    expect((await get(`Bearer ${other}`)).status).toBe(401);
  });

  it('needs no key for health and documents', async () => {
    for (const path of ['/healthz', '/readyz', '/openapi.json']) {
      expect((await request(service.app).get(path)).status).toBe(200);
    }
  });
});

describe('the rate limit', () => {
  it('counts each key, whatever address it comes from', async () => {
    const together = await Promise.all(Array.from({ length: 12 }, () => get(key)));
    expect(together.filter(({ status }) => status === 200)).toHaveLength(10);
    expect((await get(scoped)).status).toBe(200);
  });

  it('counts wrong keys by the address they come from, and good keys there are not hindered', async () => {
    const wrong = () => get(`bpn_${'B'.repeat(43)}`, '', '192.0.2.1');
    const statuses = (await Promise.all(Array.from({ length: 12 }, wrong))).map(({ status }) => status);
    expect(statuses.filter((status) => status === 401)).toHaveLength(10);
    expect(statuses.filter((status) => status === 429)).toHaveLength(2);
    expect((await get(key, '', '192.0.2.1')).status).toBe(200);
  });
});

describe('a key that is limited to a business profile', () => {
  it('sees only the numbers of it, by whatever filter', async () => {
    const own = [NUMBERS[0], NUMBERS[2]];
    expect(numbersOf(await get(scoped))).toEqual(own);
    expect(numbersOf(await get(scoped, `?businessProfileId=${PROFILES[1]}`))).toEqual([]);
    expect(numbersOf(await get(scoped, `?phoneNumber=${encodeURIComponent(NUMBERS[1] ?? '')}`))).toEqual([]);
    expect(numbersOf(await get(scoped, '?status=unregistered'))).toEqual(own);
  });

  it('gets nowhere by the cursor of a key that sees more', async () => {
    const { body } = await get(key, '?size=1');
    expect(numbersOf(await get(scoped, `?size=100&nextCursor=${body.nextCursor}`))).toEqual([NUMBERS[2]]);
  });
});

describe('a key', () => {
  it('is kept only as a hash, and listed without it', async () => {
    const rows = await service.database.select().from(apiKeys);
    expect(JSON.stringify(rows)).not.toContain(key);
    const listed = await listApiKeys(service.database);
    expect(listed).toHaveLength(2);
    expect(JSON.stringify(listed)).not.toContain(rows[0]?.hash);
    expect(listed[1]).toMatchObject({ name: 'first profile only', businessProfileIds: [PROFILES[0]], revokedAt: null });
  });

  it('that is revoked stops working within 5 seconds, whatever is remembered of it', async () => {
    const { key: doomed, id } = await createApiKey(service.database, 'doomed', null);
    expect((await get(doomed)).status).toBe(200);
    expect(await revokeApiKey(service.database, id)).toBe(true);
    expect(await revokeApiKey(service.database, id)).toBe(false);
    const revoked = performance.now();
    let last = revoked;
    while (performance.now() - revoked < 6000) {
      if ((await get(doomed)).status === 200) last = performance.now();
      await pause(150);
    }
    expect(last - revoked).toBeLessThan(5000);
    expect((await get(doomed)).status).toBe(401);
  });

  it('costs no lookup at every request', async () => {
    await get(key);
    const [before] = await service.database.execute<{ n: string }>(
      sql`SELECT pg_stat_clear_snapshot(), idx_scan AS n FROM pg_stat_user_indexes WHERE indexrelname = 'api_keys_hash_unique'`,
    );
    for (let i = 0; i < 8; i++) await get(key);
    await pause(1100);
    const [after] = await service.database.execute<{ n: string }>(
      sql`SELECT pg_stat_clear_snapshot(), idx_scan AS n FROM pg_stat_user_indexes WHERE indexrelname = 'api_keys_hash_unique'`,
    );
    expect(Number(after?.n) - Number(before?.n)).toBeLessThanOrEqual(4);
  });
});

describe('the log', () => {
  const lines: string[] = [];
  let logged: Service;
  beforeAll(async () => {
    const stream = new Writable({
      write(chunk, _encoding, done) {
        lines.push(String(chunk));
        done();
      },
    });
    const config = readConfig({ PORT: '0', AUTH: 'api-key' });
    logged = await startService(config, service.databaseUrl, pino({ level: 'trace' }, stream));
  });
  afterAll(() => logged.close());

  it('has a line for a request, with the key’s id but neither the key nor a phone number', async () => {
    const number = NUMBERS[0] ?? '';
    await request(logged.url)
      .get(`${PATH}?phoneNumber=${encodeURIComponent(number)}`)
      .set({ Authorization: `Bearer ${key}`, 'X-Request-Id': 'logged-1' });
    await request(logged.url).get(`${PATH}?apiKey=${key}&phoneNumber=${number}`);
    await pause(50);
    const [id] = (await listApiKeys(service.database)).map((each) => each.id);
    const line = lines.map((text) => JSON.parse(text)).find(({ requestId }) => requestId === 'logged-1');
    expect(line).toMatchObject({ method: 'GET', path: PATH, status: 200, rows: 1, client: `key:${id}` });
    expect(line.milliseconds).toBeGreaterThan(0);
    expect(lines.join('')).not.toContain(key);
    expect(lines.join('')).not.toContain(number.slice(1));
  });

  it('has an id for every request, its own where the client’s is not fit for a line', async () => {
    const { headers } = await request(logged.url).get('/healthz').set('X-Request-Id', 'a b"}');
    expect(headers['x-request-id']).toMatch(/^[0-9a-f-]{36}$/);
    await pause(50);
    expect(lines.join('')).toContain(headers['x-request-id']);
  });
});

describe('the command keys', () => {
  const run = promisify(execFile);
  const command = (...given: string[]) =>
    run(process.execPath, ['--import', 'tsx', 'src/main.ts', 'keys', ...given], {
      env: { ...process.env, DATABASE_URL: service.databaseUrl },
    });

  it('creates a key that works, shows it once, lists and revokes it', async () => {
    const created = await command('create', '--name', 'by hand', '--business-profile', PROFILES[1]);
    const made = created.stdout.trim();
    expect(numbersOf(await get(made))).toEqual([NUMBERS[1], NUMBERS[3]]);
    const { stdout } = await command('list');
    expect(stdout).not.toContain(made);
    const listed = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    const entry = listed.find(({ name }) => name === 'by hand');
    expect(entry).toMatchObject({ businessProfileIds: [PROFILES[1]], revokedAt: null });
    expect((await command('revoke', entry.id)).stdout).toBe(`revoked ${entry.id}\n`);
    await expect(command('revoke', entry.id)).rejects.toMatchObject({ code: 1 });
  });

  it('refuses what is no UUID', async () => {
    await expect(command('create', '--name', 'x', '--business-profile', 'all')).rejects.toMatchObject({ code: 1 });
    await expect(command('revoke', 'x')).rejects.toMatchObject({ code: 1 });
  });
});
