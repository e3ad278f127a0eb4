/** Nothing of a connection that broke reaches the next statement, whatever it was, and wherever it is sent. */
import fc from 'fast-check';
import { RateLimiterRes } from 'rate-limiter-flexible';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { failureOf } from '../../src/database/errors.js';
import { migrateDatabase } from '../../src/database/migrations.js';
import { hashOf } from '../../src/keys/keys.js';
import { givenKeys } from '../../src/operator/numbers/rows.js';
import { Spool } from '../../src/operator/numbers/spool.js';
import { runSteps } from '../../src/operator/numbers/steps.js';
import { migrationsFolder } from '../../src/packageFolder.js';
import type { LimitStore } from '../../src/service/rateLimit/limiter.js';
import { openPostgresStore } from '../../src/service/rateLimit/postgresStore.js';
import type { Service } from '../../src/service/server.js';
import { hasOpenssl, startPostgresWithTls } from '../support/certificates.js';
import { connectTo } from '../support/connection.js';
import { closeDatabase, openDatabase, useDatabase } from '../support/database.js';
import { writeNumbers } from '../support/numbers.js';
import type { PostgresServer } from '../support/postgresServer.js';
import { listenOn } from '../support/service.js';
import { openToxicProxy, type ToxicProxy } from '../support/toxicProxy.js';
import { until } from '../support/until.js';

const plain = useDatabase();
let url: string;
let proxy: ToxicProxy;
let service: Service;
let store: LimitStore;
let expected: string;
let used = 0;

const keyWith = (number: number) => `bpn_${String(number).padStart(43, '0')}`;

const list = (key: string) =>
  fetch(`${service.url}/v1/brandedPhoneNumbers?size=5`, { headers: { Authorization: key } });

/** Requests a page; `key` is new to the instance if it was not used before. */
async function request(key: string): Promise<string> {
  const response = await list(key);
  const text = await response.text();
  if (response.status === 503) return 'unavailable';
  return text === expected ? 'right' : `${response.status} ${text}`;
}

/** Returns what a failed count or step means. */
const meaningOf = (error: unknown) => {
  const isExpected = failureOf(error) !== 'ours' || /no response within/.test((error as Error).message);
  return isExpected ? 'unavailable' : String((error as Error).stack);
};

/** Sends statements, breaks their connections in between by calling `breakThem`, and returns what came of it. */
type Use = (breakThem: () => void) => Promise<string>;

const uses: Record<string, Use> = {
  async page(breakThem) {
    breakThem();
    return request(keyWith(0));
  },
  async 'look-up'(breakThem) {
    breakThem();
    return request(keyWith(++used));
  },
  async count(breakThem) {
    breakThem();
    const counted = await store.consume(`client ${++used}`).catch((error: unknown) => error);
    if (!(counted instanceof RateLimiterRes)) return meaningOf(counted);
    return counted.consumedPoints === 1 ? 'right' : `counted ${counted.consumedPoints}`;
  },
  async step(breakThem) {
    const keys = [1, 2, 3].map((i) => `${++used}/${i}`);
    const database = openDatabase(proxy.through(url));
    const spool = new Spool();
    for (const key of keys) spool.add(`1\t${key}`);
    let isBroken = false;
    try {
      await runSteps(database.url, spool, {
        lock: (sql) => [sql`SELECT`],
        write(sql) {
          if (!isBroken) breakThem();
          isBroken = true;
          return [sql`INSERT INTO written SELECT unnest(${givenKeys(sql)}) ON CONFLICT DO NOTHING`];
        },
      });
      const rows = await database.$client<{ key: string }[]>`SELECT key FROM written WHERE key = ANY (${keys}::text[])`;
      return rows.length === keys.length ? 'right' : `wrote ${rows.length}`;
    } catch (error) {
      return meaningOf(error);
    } finally {
      spool.close();
      await closeDatabase(database, 0);
    }
  },
};

const faults: Record<string, () => void> = {
  'half a response, then the end': () => proxy.breakResponses('half, then the end'),
  'half a response, then a reset': () => proxy.breakResponses('half, then a reset'),
  'rows before an error': () => proxy.breakResponses('rows before an error'),
  'a reset': () => proxy.reset(),
  'an ended login': () => {
    proxy.reset();
    proxy.breakLogin();
  },
};

/** Fills the database, and opens what the tests use, through a proxy. */
async function open(): Promise<void> {
  await writeNumbers(url);
  const sql = connectTo(url);
  const hashes = Array.from({ length: 2000 }, (_, i) => hashOf(keyWith(i)));
  await sql`INSERT INTO api_keys (hash, name) SELECT hash, 'a key' FROM unnest(string_to_array(${hashes.join()}, ',')) AS hash`;
  await sql`CREATE TABLE written (key text PRIMARY KEY)`;
  await sql.end();
  proxy = await openToxicProxy(Number(new URL(url).port));
  const settings = { AUTH: 'api-key', DATABASE_CONNECTIONS: '2', RATE_LIMIT_PER_SECOND: '1000' };
  service = await listenOn(proxy.through(url), settings);
  store = openPostgresStore(proxy.through(url), 1_000_000, () => {});
  expected = await (await list(keyWith(used))).text();
}

describe.each(hasOpenssl ? ['without', 'with'] : ['without'])('%s TLS', (how) => {
  const isEncrypted = how === 'with';
  // The proxy can't read rows that are encrypted.
  const faultNames = Object.keys(faults).filter((name) => !isEncrypted || name !== 'rows before an error');
  let encrypted: PostgresServer | undefined;

  beforeAll(async () => {
    if (isEncrypted) {
      encrypted = await startPostgresWithTls();
      await migrateDatabase(encrypted.url, migrationsFolder);
    }
    url = encrypted ? `${encrypted.url}?sslmode=require` : plain.url;
    await open();
  });
  afterAll(async () => {
    await store.close();
    await service.close();
    await proxy.close();
    await encrypted?.remove();
  });

  it('a page, a look-up, a count and a step are right or unavailable while connections break, and right afterwards', async () => {
    const use = fc.constantFrom(...Object.keys(uses));
    const round = fc.asyncProperty(fc.constantFrom(...faultNames), use, use, use, async (fault, ...names) => {
      const [breakThem = expect.fail(), ...chosen] = [faults[fault], ...names.map((name) => uses[name])];
      const [useFirst, useSecond, useLast] = chosen as [Use, Use, Use];
      // The second is sent in the same turn as the connections break, and again as soon as it has ended.
      const outcomes = await Promise.all([
        useFirst(breakThem),
        useSecond(() => {}).then(async (outcome) => [outcome, await useSecond(() => {})]),
      ]);
      for (const outcome of outcomes.flat()) expect(['right', 'unavailable']).toContain(outcome);
      // The limit's store waits for a second after a failed attempt to open its connection.
      await until(async () => {
        const outcome = await useLast(() => {});
        expect(['right', 'unavailable']).toContain(outcome);
        return outcome === 'right';
      }, 'it is right again');
    });
    await fc.assert(round, { numRuns: Math.ceil(20 * inject('tries')), endOnFailure: true });
  });

  it('a statement that is sent between the events of a broken socket rejects', async () => {
    const database = openDatabase(proxy.through(url));
    const { $client: sql } = database;
    await sql`SELECT`;
    const later = sql`SELECT pg_sleep(5)`.catch(() =>
      Promise.allSettled([sql`SELECT 1 AS one`, sql.unsafe('SELECT 2')]),
    );
    setTimeout(() => proxy.reset(), 200);
    const codes = ((await later) as PromiseRejectedResult[]).map(({ reason }) => reason?.code);
    expect(codes).toEqual(['CONNECTION_ENDED', 'CONNECTION_ENDED']);
  });
});
