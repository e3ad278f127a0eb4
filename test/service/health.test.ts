import { sql } from 'drizzle-orm';
import request from 'supertest';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { contract } from '../../src/contract.js';
import type { Service } from '../../src/service/server.js';
import { useConnection, whileLocked } from '../support/connection.js';
import { useDatabase } from '../support/database.js';
import { numberWith, write } from '../support/numbers.js';
import { problemOf } from '../support/response.js';
import { listenOn, metricsOf, useService } from '../support/service.js';
import { openToxicProxy, type ToxicProxy } from '../support/toxicProxy.js';
import { until } from '../support/until.js';

const service = useService();
const statuses = async () => ({
  ready: await request(service.url).get('/readyz'),
  list: await request(service.url).get('/v1/brandedPhoneNumbers'),
});

describe('/readyz', () => {
  const NOT_READY = [503, expect.stringMatching(/schema .* run branded-phone-numbers migrate$/)];

  /** A statement that damages the database, and one that repairs it. */
  const damages = {
    table: ['ALTER TABLE items RENAME TO missing', 'ALTER TABLE missing RENAME TO items'],
    column: ['ALTER TABLE items RENAME item_tail TO missing', 'ALTER TABLE items RENAME missing TO item_tail'],
    schema: ['ALTER SCHEMA drizzle RENAME TO missing', 'ALTER SCHEMA missing RENAME TO drizzle'],
    migration: [
      "UPDATE drizzle.__drizzle_migrations SET hash = 'x' || hash",
      'UPDATE drizzle.__drizzle_migrations SET hash = substr(hash, 2)',
    ],
  };
  it.each<[string, string[], unknown[], number]>([
    ['responds with 503 and the reason if the table of the list is missing', damages.table, NOT_READY, 503],
    ['does not notice that a column is missing, although the list fails', damages.column, [200, 'ready'], 503],
    ['responds with 503 and the reason if no migration is recorded', damages.schema, NOT_READY, 200],
    ['responds with 503 and the reason if a migration is missing', damages.migration, NOT_READY, 200],
  ])('%s', async (_name, [damage = '', repair = ''], readiness, listStatus) => {
    await service.database.execute(sql.raw(damage));
    const { ready, list } = await statuses();
    // HAProxy's `option httpchk` sends OPTIONS.
    const probes = [request(service.url).options('/readyz'), request(service.url).head('/readyz')];
    for (const probe of probes) expect((await probe).status).toBe(ready.status);
    await service.database.execute(sql.raw(repair));
    expect([ready.status, ready.body.status]).toEqual(readiness);
    expect(list.status).toBe(listStatus);
    if (listStatus === 503) expect(problemOf(list).type).toBe('/problems/unavailable');
    expect((await request(service.url).get('/readyz')).status).toBe(200);
  });

  const get = async (url: string) => (await (await fetch(url)).json()) as { status: string; version?: string };

  it('shows the message from PostgreSQL, and the version, only on METRICS_PORT', async () => {
    const sql = useConnection(service.databaseUrl);
    await sql`ALTER TABLE items RENAME TO gone`;
    const [shown, hidden] = [await get(`${service.metricsUrl}/readyz`), await get(`${service.url}/readyz`)];
    await sql`ALTER TABLE gone RENAME TO items`;
    expect(shown.status).toBe(`${hidden.status} (relation "items" does not exist)`);
    const { version } = contract.info;
    expect(await get(`${service.metricsUrl}/healthz`)).toEqual({ status: 'alive', version });
    expect(await get(`${service.url}/healthz`)).toEqual({ status: 'alive' });
  });

  it('agrees with branded_phone_numbers_ready, which each scrape computes', async () => {
    const sql = useConnection(service.databaseUrl);
    const scraped = async () => (await metricsOf(service)).match(/^branded.*$/gm);
    const build = `branded_phone_numbers_build_info{version="${contract.info.version}"} 1`;
    expect(await scraped()).toEqual([build, 'branded_phone_numbers_ready 1']);
    await sql`ALTER TABLE items RENAME TO gone`;
    expect(await scraped()).toEqual([build, 'branded_phone_numbers_ready 0']);
    await sql`ALTER TABLE gone RENAME TO items`;
  });
});

describe('/readyz while the database fails', () => {
  const database = useDatabase();
  let proxy: ToxicProxy;
  let service: Service;
  beforeAll(async () => {
    proxy = await openToxicProxy(Number(new URL(database.url).port));
    service = await listenOn(proxy.through(database.url));
  });
  afterAll(async () => {
    await service.close();
    await proxy.close();
  });

  async function get(url: string | undefined) {
    const response = await fetch(`${url}/readyz`);
    return { status: response.status, reason: ((await response.json()) as { status: string }).status };
  }

  /** Waits until the reason on METRICS_PORT matches, and expects that PORT does not show it. */
  async function expectReason(pattern: RegExp): Promise<void> {
    await until(async () => pattern.test((await get(service.metricsUrl)).reason), `the reason is ${pattern}`);
    expect(await get(service.url)).toEqual({ status: 503, reason: 'the database does not respond' });
  }
  const untilReady = () => until(async () => (await get(service.url)).status === 200, 'it is ready again');

  it('responds to all requests with the result of one check', async () => {
    proxy.behave('slow', 200);
    const areReady = async () => {
      const results = await Promise.all(Array.from({ length: 300 }, () => get(service.url)));
      return results.every(({ status }) => status === 200);
    };
    // On a busy machine, the time of a check may run out before its responses are read.
    await until(areReady, '300 requests at once are 200');
    proxy.behave('passing');
  });

  it('says on METRICS_PORT that a table is locked', async () => {
    await whileLocked(database.url, 'LOCK items IN ACCESS EXCLUSIVE MODE', () =>
      expectReason(/^the database does not respond \(canceling statement due to statement timeout\)$/),
    );
    await untilReady();
  });

  it('says on METRICS_PORT that nothing listens at the address of PostgreSQL', async () => {
    await proxy.close();
    await expectReason(/\(connect ECONNREFUSED 127\.0\.0\.1:\d+\)$/);
    proxy = await openToxicProxy(Number(new URL(database.url).port), proxy.port);
    await untilReady();
  });
});

it('pages are served from a database that a newer version has migrated', async () => {
  await write(service.database, [numberWith({ phoneNumber: '+14155550123' })]);
  await statuses();
  for (const statement of [
    'CREATE TABLE later (id uuid PRIMARY KEY, phone_number text REFERENCES branded_phone_numbers)',
    'ALTER TABLE branded_phone_numbers ADD COLUMN later text',
    'ALTER TABLE carrier_statuses ADD COLUMN later text',
    'ALTER TABLE api_keys ADD COLUMN later text',
    "INSERT INTO drizzle.__drizzle_migrations (hash, created_at) VALUES ('later', 4102444800000)",
  ])
    await service.database.execute(sql.raw(statement));
  const { ready, list } = await statuses();
  expect([ready.status, list.status, list.body.items.length]).toEqual([200, 200, 1]);
});
