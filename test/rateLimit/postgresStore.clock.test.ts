import { like, type SQL, sql } from 'drizzle-orm';
import type { RateLimiterRes } from 'rate-limiter-flexible';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { closeDatabase, type Database, openDatabase } from '../../src/database/connect.js';
import { rateLimits } from '../../src/database/schema.js';
import type { LimitStore } from '../../src/rateLimit/limiter.js';
import { openPostgresStore } from '../../src/rateLimit/postgresStore.js';
import { createDatabase } from '../database.js';

let store: LimitStore;
let database: Database;
let url: string;
let drop: () => Promise<void>;

beforeAll(async () => {
  ({ url, drop } = await createDatabase());
  database = openDatabase(url);
  store = openPostgresStore(url, 10);
});
afterAll(async () => {
  await store.close();
  await closeDatabase(database);
  await drop();
});

const hasPassed = (client: string) =>
  store.consume(client).then(
    () => true,
    () => false,
  );

it('counts requests that come together by one statement, each for its own client', async () => {
  const busy = Array.from({ length: 15 }, () => hasPassed('together:busy'));
  const others = Array.from({ length: 30 }, (_, i) => hasPassed(`together:${i}`));
  expect(await Promise.all(others)).toEqual(Array(30).fill(true));
  expect((await Promise.all(busy)).filter(Boolean)).toHaveLength(10);
  const [found] = await database
    .select({ clients: sql<number>`count(*)::integer`, statements: sql<number>`count(DISTINCT xmin::text)::integer` })
    .from(rateLimits)
    .where(like(rateLimits.client, 'together:%'));
  expect(found).toEqual({ clients: 31, statements: 1 });
});

it('never deadlocks with another instance, in whatever order their clients come', async () => {
  const other = openPostgresStore(url, 10);
  const clients = Array.from({ length: 40 }, (_, i) => `crossing:${i}`);
  const counts: Promise<unknown>[] = [];
  for (let round = 0; round < 5; round++) {
    counts.push(...clients.map((client) => store.consume(client)));
    counts.push(...[...clients].reverse().map((client) => other.consume(client)));
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  const ends = await Promise.allSettled(counts);
  await other.close();
  expect(ends.filter(({ status }) => status === 'rejected')).toEqual([]);
});

describe('after the clock of the database was set back', () => {
  const ahead = sql`clock_timestamp() + interval '10 minutes'`;
  const setLog = (client: string, requests: SQL) =>
    database
      .insert(rateLimits)
      .values({ client, requests, allowed: true } as never)
      .onConflictDoUpdate({ target: rateLimits.client, set: { requests } });

  it('a client that has used up its second waits for a second at most, not for the step', async () => {
    await setLog('step:client', sql`array_fill(${ahead}, ARRAY[10])`);
    const refusal = await store.consume('step:client').catch((reason: RateLimiterRes) => reason);
    expect([refusal.remainingPoints, refusal.consumedPoints]).toEqual([0, 11]);
    expect(refusal.msBeforeNext).toBeGreaterThan(900);
    expect(refusal.msBeforeNext).toBeLessThanOrEqual(1000);
    await new Promise((resolve) => setTimeout(resolve, 1010));
    expect(await hasPassed('step:client')).toBe(true);
  });

  it('an instance that ended before counts no more', async () => {
    await setLog('instance:gone', sql`ARRAY[${ahead}]`);
    expect(await store.countInstances('living', 6000)).toBe(1);
  });
});
