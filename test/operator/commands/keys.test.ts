import { createWriteStream } from 'node:fs';
import { eq } from 'drizzle-orm';
import request from 'supertest';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { apiKeys } from '../../../src/database/schema.js';
import { createApiKey, listApiKeys, revokeApiKeys } from '../../../src/keys/keys.js';
import type { Service } from '../../../src/service/server.js';
import { useCommand } from '../../support/command.js';
import { listenOn, metricOf } from '../../support/service.js';
import { until } from '../../support/until.js';

const PROFILE = '5d9dc9f8-1818-4811-892f-902bd23f0824';
const command = useCommand();
let service: Service;

beforeAll(async () => {
  service = await listenOn(command.databaseUrl, { AUTH: 'api-key' });
});
afterAll(() => service.close());

const newKey = (name: string, options = {}) => createApiKey(command.drizzle, name, options);
const listed = async () =>
  (await command.run(['keys', 'list', '--json'])).stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));

describe('keys create', () => {
  it('prints a valid key, which no command prints again', async () => {
    const { code, stdout, stderr } = await command.run(['keys', 'create', '--name', 'Circle Bank']);
    expect([code, stderr]).toEqual([
      0,
      expect.stringMatching(/^created a key with the id [0-9a-f-]{36}; save it now, as it is never shown again\n$/),
    ]);
    const key = stdout.trim();
    const response = await request(service.url).get('/v1/brandedPhoneNumbers').set('Authorization', `Bearer ${key}`);
    expect(response.status).toBe(200);
    expect(JSON.stringify(await listed())).not.toContain(key);
    expect((await command.run(['keys', 'list'])).stdout).not.toContain(key);
  });

  it('accepts business profiles, and an expiry that is a time, a day or a number of days', async () => {
    const create = async (...args: string[]) =>
      JSON.parse((await command.run(['keys', 'create', '--json', ...args])).stdout);
    const byTime = await create('--name', 'by time', '--expires', '2199-01-31T01:00:00+01:00');
    expect(byTime).toMatchObject({ expiresAt: '2199-01-31T00:00:00.000Z', state: 'active', revokedAt: null });
    const byDate = await create('--name', 'by date', '--expires', '2199-01-31');
    expect(byDate).toMatchObject({ expiresAt: '2199-01-31T00:00:00.000Z' });
    const byDays = await create('--name', 'by days', '--expires', '90d', '--business-profile', PROFILE.toUpperCase());
    expect(byDays).toMatchObject({ key: expect.stringMatching(/^bpn_/), businessProfileIds: [PROFILE] });
    const days = (Date.parse(byDays.expiresAt) - Date.parse(byDays.createdAt)) / 86_400_000;
    expect(days).toBeGreaterThan(89.99);
    expect(days).toBeLessThanOrEqual(90);
  });

  it.each([
    ['an empty name', ['--name', ''], /the name must have 1 to 255 characters, and no control characters/],
    ['an expiry in the past', ['--name', 'late', '--expires', '2020-01-01T00:00:00Z'], /expiry must be in the future/],
    ['a day in the past', ['--name', 'late', '--expires', '2026-01-01'], /expiry must be in the future/],
    ['an expiry that is not a time', ['--name', 'x', '--expires', 'tomorrow'], /days or hours: 90d, 12h/],
    ['a day that does not exist', ['--name', 'x', '--expires', '2027-02-30T00:00:00Z'], /days or hours: 90d, 12h/],
    ['a time after the year 9999', ['--name', 'x', '--expires', '9999-12-31T23:59:59-05:00'], /the years 1 to 9999/],
    ['a time before the year 1', ['--name', 'x', '--expires', '0000-01-01T00:00:00Z'], /the years 1 to 9999/],
    ['a profile that is not a UUID', ['--name', 'x', '--business-profile', 'all'], /must be a UUID/],
  ])('rejects %s and creates no key', async (_what, args, reason) => {
    const before = await command.drizzle.$count(apiKeys);
    const { code, stdout, stderr } = await command.run(['keys', 'create', ...args]);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(reason);
    expect(stderr).not.toContain('    at ');
    expect(await command.drizzle.$count(apiKeys)).toBe(before);
  });

  it('warns of business profiles that do not exist, and creates the key', async () => {
    const known = '00000000-0000-4000-8000-00000000aaaa';
    await command.sql`INSERT INTO business_profiles VALUES (${known}, 'Known', 'approved')`;
    const unknown = '00000000-0000-4000-8000-00000000bbbb';
    const args = ['--name', 'early', '--json', '--business-profile', known, '--business-profile', unknown];
    const { code, stdout, stderr } = await command.run(['keys', 'create', ...args]);
    expect([code, JSON.parse(stdout).businessProfileIds]).toEqual([0, [known, unknown]]);
    expect(stderr).toMatch(new RegExp(`^business profile ${unknown} does not exist yet; .*\\n$`));
  });

  it('creates no key if standard output is closed', async () => {
    const { code, stderr } = await command.shell('exec $command keys create --name unseen >&-');
    expect([code, stderr]).toEqual([1, 'standard output is closed or discarded, and a key is shown only once\n']);
    expect(await command.drizzle.select().from(apiKeys).where(eq(apiKeys.name, 'unseen'))).toEqual([]);
  });
});

describe('keys list', () => {
  it('prints a table with the state of each key, and times in RFC 3339', async () => {
    const expired = new Date(Date.now() - 1000).toISOString();
    await command.drizzle.insert(apiKeys).values({
      hash: 'expired',
      name: 'Expired Inc',
      createdAt: '2020-01-01T00:00:00Z',
      expiresAt: expired,
    });
    const { stdout } = await command.run(['keys', 'list']);
    const [header, ...rows] = stdout.trim().split('\n');
    expect(header).toMatch(/^ID +STATE +CREATED +EXPIRES +REVOKED +LAST USED +PROFILES +NAME$/);
    expect(rows).toHaveLength(await command.drizzle.$count(apiKeys));
    expect(rows[0]).toMatch(
      /^[0-9a-f-]{36} {2}expired +2020-01-01T00:00:00\.000Z +\S+Z {2}- +never +all +Expired Inc$/,
    );
    expect((await listed())[0]).toEqual({
      id: expect.any(String),
      name: 'Expired Inc',
      state: 'expired',
      businessProfileIds: null,
      createdAt: '2020-01-01T00:00:00.000Z',
      createdBy: 'postgres',
      expiresAt: expired,
      revokedAt: null,
      revokedBy: null,
      lastUsedOn: null,
    });
  });

  it('shows with --all which role created and which one revoked a key', async () => {
    const role = `"key's creator"`;
    const { sql } = command;
    await sql.unsafe(`CREATE ROLE ${role} SUPERUSER LOGIN PASSWORD 'secret'`);
    const url = Object.assign(new URL(command.databaseUrl), { username: "key's creator", password: 'secret' }).href;
    const { stdout } = await command.run(['keys', 'create', '--name', 'handed over', '--json'], '', {
      environment: { DATABASE_URL: url },
    });
    const { id } = JSON.parse(stdout);
    await command.run(['keys', 'revoke', id]);
    const table = (await command.run(['keys', 'list', '--all'])).stdout;
    expect(table).toMatch(/^ID .* CREATED +CREATED BY +EXPIRES +REVOKED +REVOKED BY +LAST USED /);
    expect(table).toMatch(new RegExp(`^${id} +revoked +\\S+Z +key's creator +never +\\S+Z +postgres +never `, 'm'));
    await sql.unsafe(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
  });

  it('warns of active keys that expire within 14 days, which a metric counts', async () => {
    const day = 86_400_000;
    const expires = (name: string, days: number) => newKey(name, { expiresAt: new Date(Date.now() + days * day) });
    const expiring = () => metricOf(service, 'branded_phone_numbers_keys_expiring');
    expect(await expiring()).toBe(0);
    const { id, expiresAt } = (await expires('soon', 13.9)).created;
    await expires('later', 14.1);
    await revokeApiKeys(command.drizzle, [(await expires('revoked', 1)).created.id]);
    expect((await command.run(['keys', 'list'])).stderr).toBe(
      `the key ${id} (soon) expires at ${expiresAt}; create another one and hand it over\n`,
    );
    expect(await expiring()).toBe(1);
    await revokeApiKeys(command.drizzle, [id]);
    expect((await command.run(['keys', 'list'])).stderr).toBe('');
  });

  it('shows the day of the last use of a key', async () => {
    const { key, created } = await newKey('used');
    expect(created.lastUsedOn).toBeNull();
    await command.drizzle.update(apiKeys).set({ lastUsedOn: '2020-02-29' }).where(eq(apiKeys.id, created.id));
    const today = () => new Date().toISOString().slice(0, 10);
    const before = today();
    const shown = async () => (await listed()).find(({ id }) => id === created.id).lastUsedOn;
    const use = () => request(service.url).get('/v1/brandedPhoneNumbers').set('Authorization', `Bearer ${key}`);
    await use().expect(200);
    const isRecorded = async () => {
      // Again, because a use is not recorded while that of an earlier test is.
      await use();
      return (await shown()) !== '2020-02-29';
    };
    await until(isRecorded, 'the use is recorded');
    expect([before, today()]).toContain(await shown());
    expect((await command.run(['keys', 'list'])).stdout).toMatch(
      new RegExp(`^${created.id} .* ${before.slice(0, 8)}`, 'm'),
    );
  });
});

describe('keys revoke', () => {
  it('revokes active keys, and fails for ids of no active key', async () => {
    const { id } = (await newKey('short-lived')).created;
    const none = '00000000-0000-4000-8000-000000000000';
    const { code, stdout, stderr } = await command.run(['keys', 'revoke', none, id]);
    expect({ code, stdout, stderr }).toEqual({
      code: 1,
      stdout: `revoked ${id}\n`,
      stderr: `no active key has the id ${none}\n`,
    });
    const revoked = (await listApiKeys(command.drizzle)).find((key) => key.id === id);
    expect(revoked).toMatchObject({ state: 'revoked', revokedAt: expect.stringMatching(/^\d{4}-.+Z$/) });
    expect((await command.run(['keys', 'revoke', id])).code).toBe(1);
    expect((await command.run(['keys', 'revoke', 'x'])).stderr).toContain('must be a UUID');
  });

  it('revokes all keys, and names them on standard error, if it cannot print to standard output', async () => {
    const ids = await Promise.all(['one', 'two'].map(async (name) => (await newKey(name)).created.id));
    const stdout = createWriteStream('/dev/full').on('error', () => {});
    const { code, stderr } = await command.run(['keys', 'revoke', ...ids], '', { stdout });
    expect([code, stderr]).toEqual([
      1,
      expect.stringMatching(new RegExp(`^revoked ${ids[0]}\nrevoked ${ids[1]}\ncould not write`)),
    ]);
    const states = (await listApiKeys(command.drizzle)).filter(({ id }) => ids.includes(id)).map(({ state }) => state);
    expect(states).toEqual(['revoked', 'revoked']);
  });
});
