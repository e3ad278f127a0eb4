/** Look-ups of keys: valid keys are accepted, and unknown keys cause few statements. */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Request } from 'express';
import { expect, it, onTestFinished, vi } from 'vitest';
import { Connection } from '../../src/database/connection.js';
import type { Connect } from '../../src/database/pool.js';
import { Reader } from '../../src/database/reads.js';
import { identifyByApiKey, prepareFindKeys, prepareRecordUse } from '../../src/keys/identify.js';
import { createApiKey } from '../../src/keys/keys.js';
import { openLog } from '../../src/log.js';
import { whileLocked } from '../support/connection.js';
import { useCountedServices } from '../support/countedService.js';
import { useServiceOn } from '../support/service.js';
import { useProxy } from '../support/toxicProxy.js';
import { repeat, until } from '../support/until.js';

const services = useCountedServices();
const { database } = services;
const STATEMENTS_PER_SECOND = 100;
/** Returns a well-formed key that does not exist. */
const unknownKey = () => `bpn_${randomBytes(32).toString('base64url')}`;

/** Creates `count` keys. */
const newKeys = (count: number) =>
  Promise.all(Array.from({ length: count }, async () => (await createApiKey(database.drizzle, 'new')).key));

/** Inserts a key with this hash, for tests that send no key. */
const insertKey = (hash: string) =>
  database.sql`INSERT INTO api_keys (hash, name, created_at) VALUES (${hash}, ${hash}, now())`;

/** Opens a reader on the database of this file, which is closed after the test. */
function openReader(connections: number, readsEach: number, setQueries = (_count: number) => {}): Reader {
  const connect: Connect = (onBroken) => new Connection(database.url, { queriesAtOnce: readsEach, onBroken });
  const log = openLog({ LOG_LEVEL: 'silent' });
  const reader = new Reader(connect, connections, log, { setQueries });
  onTestFinished(() => reader.close(0));
  return reader;
}

/** Opens a reader, and returns a function that looks keys up by their hashes. */
function openFinder(connections: number, readsEach: number) {
  const reader = openReader(connections, readsEach);
  const findKeys = prepareFindKeys(prepareRecordUse(database.url));
  return (...hashes: string[]) => reader.read((database) => findKeys(database, hashes), performance.now() + 5000);
}

async function statusOf(url: string, key: string, address = '192.0.2.1'): Promise<number> {
  const response = await fetch(url, { headers: { Authorization: key, 'X-Forwarded-For': address } });
  await response.arrayBuffer();
  return response.status;
}

it('accepts ten new valid keys from an address that floods the service with unknown keys', async () => {
  const { read, list: url } = await services.open({ AUTH: 'api-key' });
  const keys = await newKeys(10);
  const begin = performance.now();
  const statuses: number[] = [];
  const stop = repeat(40, async () => statuses.push(await statusOf(url, unknownKey())));
  await sleep(1000);
  const good = await Promise.all(
    keys.map(async (key, i) => {
      await sleep(100 * i);
      const before = statuses.length;
      const status = await statusOf(url, key);
      return { status, overtaken: statuses.length - before };
    }),
  );
  await stop();
  const seconds = (performance.now() - begin) / 1000;

  expect(good.map(({ status }) => status)).toEqual(Array(10).fill(200));
  // Each takes three round trips (key, limit and page), in each of which forty clients may get a response.
  expect(Math.max(...good.map(({ overtaken }) => overtaken))).toBeLessThan(400);
  expect([...new Set(statuses)].sort()).toEqual([401, 429]);
  expect(statuses.filter((status) => status === 401).length).toBeLessThanOrEqual(10 * (1 + Math.ceil(seconds)));
  const lookups = read.mock.calls.length - good.length;
  expect(lookups).toBeLessThanOrEqual(STATEMENTS_PER_SECOND * seconds + 1);
  expect(lookups).toBeLessThan(statuses.length);
});

it.each([
  ['an unknown key', async () => unknownKey(), 401, 1],
  ['a valid key', async () => (await newKeys(1))[0] ?? '', 200, 1 + 5],
])('looks %s up once for five requests', async (_name, newKey, status, reads) => {
  const { read, get } = await services.open({ AUTH: 'api-key' });
  const key = await newKey();
  const statuses: number[] = [];
  for (let i = 0; i < 5; i++) statuses.push((await get('192.0.2.2').set('Authorization', key)).status);
  // With a valid key, each request also reads a page.
  expect([statuses, read.mock.calls.length]).toEqual([Array(5).fill(status), reads]);
});

it('accepts valid keys during a flood of unknown ones although PostgreSQL is 200 ms away', async () => {
  const [keys, others] = [await newKeys(12), await newKeys(12)];
  const proxy = await useProxy(database.url);
  const settings = { AUTH: 'api-key', RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: '1' };
  const service = await useServiceOn(proxy.through(database.url), settings);
  const url = `${service.url}/v1/brandedPhoneNumbers`;
  // Opens all connections, each of which would take a second later on.
  await Promise.all(others.map((key) => statusOf(url, key)));
  proxy.behave('slow', 200);
  const flooded = new Set<number>();
  const stop = repeat(60, async (i) => flooded.add(await statusOf(url, unknownKey(), `198.51.100.${i}`)));
  await sleep(500);
  const good = keys.map(async (key) => {
    const statuses: number[] = [];
    for (let i = 0; i < 4; i++) statuses.push(await statusOf(url, key));
    return statuses;
  });
  expect((await Promise.all(good)).flat()).toEqual(Array(48).fill(200));
  await stop();
  expect([...flooded]).toContain(401);
  // A busy machine looks some up too late.
  expect([...flooded].filter((status) => ![401, 429, 503].includes(status))).toEqual([]);
});

it.each([
  ['at once', 100, 1],
  ['one after another', 1, 100],
])('looks up keys that arrive %s in few statements', async (_how, atOnce, times) => {
  const reader = openReader(10, 3);
  const read = vi.spyOn(reader, 'read');
  const identify = identifyByApiKey(reader, prepareFindKeys());
  const request = () => ({ headers: { authorization: unknownKey() } }) as Request;
  const begin = performance.now();
  for (let i = 0; i < times; i++) {
    await Promise.all(Array.from({ length: atOnce }, () => identify(request(), begin + 10_000)));
  }
  const seconds = (performance.now() - begin) / 1000;
  expect(read.mock.calls.length).toBeLessThanOrEqual(STATEMENTS_PER_SECOND * seconds + 1);
});

it('looks keys up before the pages that wait', async () => {
  const [key = ''] = await newKeys(1);
  let waiting = 0;
  const reader = openReader(1, 1, (count) => (waiting = count));
  const sent: string[] = [];
  const find = prepareFindKeys();
  const identify = identifyByApiKey(reader, (database, hashes) => {
    sent.push('key');
    return find(database, hashes);
  });
  const deadline = performance.now() + 10_000;
  let end = () => {};
  await reader.read(async () => {}, deadline);
  const running = reader.read(() => new Promise<void>((resolve) => (end = resolve)), deadline);
  const page = reader.read(async () => sent.push('page'), deadline);
  const identified = identify({ headers: { authorization: `Bearer ${key}` } } as Request, deadline);
  await until(() => waiting === 3);
  end();
  await Promise.all([running, page, identified]);
  expect(sent).toEqual(['key', 'page']);
});

it('makes no request of a known key wait for a look-up, and uses none for more than 5 seconds', async () => {
  const [key = ''] = await newKeys(1);
  const proxy = await useProxy(database.url);
  const service = await useServiceOn(proxy.through(database.url), { AUTH: 'api-key' });
  // Of a request with a fault, only the key is read from the database.
  const url = `${service.url}/v1/brandedPhoneNumbers?size=0`;
  proxy.behave('slow', 700);
  const begin = performance.now();
  expect(await statusOf(url, key)).toBe(400);
  proxy.behave('silent');
  let lastAccepted = 0;
  for (let sent = begin; sent < begin + 8000; await sleep(50)) {
    sent = performance.now();
    if ((await statusOf(url, key)) !== 400) break;
    lastAccepted = sent - begin;
  }
  // A look-up begins when the request is processed, which may take a moment. Its response takes 1.4 s.
  expect(lastAccepted).toBeGreaterThan(3500);
  expect(lastAccepted).toBeLessThan(5900);
});

it('rejects a request at its own deadline if its look-up waits for another one', async () => {
  const [used = '', first = '', second = ''] = await newKeys(3);
  // Otherwise their use would be recorded on the connection that looks them up.
  await database.sql`UPDATE api_keys SET last_used_on = now()`;
  const proxy = await useProxy(database.url);
  // A request has 1.5 s.
  const service = await useServiceOn(proxy.through(database.url), {
    AUTH: 'api-key',
    REQUEST_TIMEOUT_SECONDS: '2',
  });
  const url = `${service.url}/v1/brandedPhoneNumbers?size=0`;
  expect(await statusOf(url, used)).toBe(400);
  proxy.behave('slow', 1000);
  const running = statusOf(url, first);
  await sleep(100);
  expect(await statusOf(url, second)).toBe(503);
  await running;
});

it('records the use of keys by one statement at a time, so that a locked table does not occupy all connections', async () => {
  const { sql } = database;
  await insertKey('used');
  const find = openFinder(4, 1);
  const waiting = () => sql`
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'update "api_keys"%'`;
  await whileLocked(database.url, 'LOCK api_keys IN SHARE MODE', async () => {
    for (let i = 0; i < 3; i++) expect((await find('used')).size).toBe(1);
    await until(async () => (await waiting()).length > 0, 'an update waits');
    for (let i = 0; i < 3; i++) expect((await find('used')).size).toBe(1);
    expect(await waiting()).toHaveLength(1);
  });
});

it('does not wait for a lock on a key, and records its use after the lock is released', async () => {
  await insertKey('locked');
  const find = openFinder(1, 4);
  await whileLocked(database.url, 'SELECT FROM api_keys FOR UPDATE', async () => {
    for (let i = 0; i < 5; i++) expect((await find('locked')).size).toBe(1);
  });
  const used = () => database.sql`SELECT FROM api_keys WHERE hash = 'locked' AND last_used_on IS NOT NULL`;
  await until(async () => (await find('locked')).size === 1 && (await used()).length === 1, 'its use is recorded');
});

it('does not record uses for a minute after a failure, as of a read-only server', async () => {
  const { sql } = database;
  await insertKey('unrecorded');
  // A sequence also counts what is rolled back.
  await sql.unsafe(`
    CREATE SEQUENCE attempts;
    CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'attempt %', nextval('attempts'); END $$;
    CREATE TRIGGER fail BEFORE UPDATE ON api_keys FOR EACH ROW EXECUTE FUNCTION fail()`);
  const find = openFinder(1, 1);
  const isAttempted = async () => (await sql`SELECT is_called FROM attempts`)[0]?.is_called;
  for (let i = 0; i < 5; i++) {
    expect((await find('unrecorded')).size).toBe(1);
    await until(isAttempted, 'the use would be recorded');
  }
  await sleep(100);
  const [{ attempts } = {}] = await sql`SELECT last_value::int AS attempts FROM attempts`;
  await sql.unsafe('DROP TRIGGER fail ON api_keys; DROP FUNCTION fail; DROP SEQUENCE attempts');
  expect(attempts).toBe(1);
});

it('does not record a use of a key that has expired', async () => {
  const { sql } = database;
  await sql`
    INSERT INTO api_keys (hash, name, created_at, expires_at)
    VALUES ('expired', 'expired', '2020-01-01', '2020-01-02'), ('valid', 'valid', now(), NULL)`;
  await openFinder(1, 4)('expired', 'valid');
  const used = () => sql`SELECT hash FROM api_keys WHERE hash IN ('expired', 'valid') AND last_used_on IS NOT NULL`;
  await until(async () => (await used()).length > 0, 'the use is recorded');
  expect([...(await used())]).toEqual([{ hash: 'valid' }]);
});
