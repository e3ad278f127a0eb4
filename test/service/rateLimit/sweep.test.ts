/** The sweep, which removes idle clients from the table `rate_limits`. */
import { setTimeout as sleep } from 'node:timers/promises';
import type postgres from 'postgres';
import { beforeAll, expect, it } from 'vitest';
import { type Log, openLog } from '../../../src/log.js';
import { useDatabase } from '../../support/database.js';
import { metricOf, useServiceOn } from '../../support/service.js';
import { repeat, until } from '../../support/until.js';

const PATH = '/v1/brandedPhoneNumbers';
const IDLE = 100_000;
/** Clients inserted after the idle ones, so that the sweep reaches them last. */
const ACTIVE = 1500;

const database = useDatabase();
let sql: postgres.Sql;

beforeAll(async () => {
  sql = database.sql;
  const add = (name: string, count: number, age: string) =>
    sql.unsafe(`
      INSERT INTO rate_limits SELECT 'address:${name} ' || i, array_fill(now() - interval '${age}', ARRAY[10]), 1
      FROM generate_series(1, ${count}) AS i`);
  await add('idle', IDLE, '2 minutes');
  // Setting the clock back leaves times in the future.
  await add('ahead', 100, '-1 hour');
  await add('i active', ACTIVE, '-5 seconds');
});

const start = (log?: Log) => useServiceOn(database.url, { RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: '1' }, log);

const countOf = async (pattern: string) => {
  const [row] = await sql`SELECT count(*)::integer AS count FROM rate_limits WHERE client LIKE ${pattern}`;
  return row?.count;
};

it('the sweep removes 100,000 idle clients and keeps the active ones, while requests are counted', async () => {
  const service = await start();
  const served = new Set<string>();
  const stop = repeat(4, async (i) => {
    const client = `203.0.113.${i}`;
    const { status } = await fetch(`${service.url}${PATH}`, { headers: { 'X-Forwarded-For': client } });
    expect([200, 429]).toContain(status);
    if (status === 200) served.add(client);
    await sleep(120);
  });
  // If a busy machine ends a sweep, the next one begins after a minute.
  const areGone = until(async () => (await countOf('address:idle %')) === 0, 'the idle clients are gone', 150_000);
  await areGone.finally(stop);
  expect(await countOf('address:ahead %')).toBe(0);
  expect(served.size).toBe(4);
  expect(await countOf('address:i active %')).toBe(ACTIVE);
  expect(await countOf('address:203.%')).toBe(4);
}, 180_000);

it('a sweep that fails is logged, and is no failure to count a request', async () => {
  await sql`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END'`;
  await sql`CREATE TRIGGER refuse BEFORE DELETE ON rate_limits EXECUTE FUNCTION refuse()`;
  const log = openLog({ LOG_LEVEL: 'silent' });
  const lines: unknown[] = [];
  log.error = ((...line: unknown[]) => void lines.push(line)) as typeof log.error;
  const service = await start(log);
  await until(() => lines.length > 0, 'the failure is logged');
  expect(lines).toEqual([[{ reason: 'no' }, 'idle clients could not be removed from rate_limits']]);
  expect(await metricOf(service, 'rate_limit_store_errors_total')).toBe(0);
  await sql`DROP FUNCTION refuse() CASCADE`;
});
