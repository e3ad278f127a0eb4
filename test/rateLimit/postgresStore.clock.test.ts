import { like, type SQL, sql } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { closeDatabase, type Database, openDatabase } from '../../src/database/connect.js';
import { rateLimits } from '../../src/database/schema.js';
import { openLog } from '../../src/log.js';
import { createMetrics } from '../../src/metrics.js';
import { type LimitStore, StoreForgot } from '../../src/rateLimit/limiter.js';
import { openPostgresStore } from '../../src/rateLimit/postgresStore.js';
import { createRateLimit } from '../../src/rateLimit/rateLimit.js';
import { createDatabase } from '../database.js';

let store: LimitStore;
let database: Database;
let url: string;
let drop: () => Promise<void>;

beforeAll(async () => {
  ({ url, drop } = await createDatabase());
  database = openDatabase(url);
  store = openPostgresStore(url, 10, failSweep);
  await store.register();
});
afterAll(async () => {
  await store.close();
  await closeDatabase(database);
  await drop();
});

const failSweep = (reason: Error) => {
  throw reason;
};

const hasPassed = async (client: string) => (await store.count(client)).allowed;

it('counts requests that come together in one statement, each for its own client', async () => {
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
  const other = openPostgresStore(url, 10, failSweep);
  await other.register();
  const clients = Array.from({ length: 40 }, (_, i) => `crossing:${i}`);
  const counts: Promise<unknown>[] = [];
  for (let round = 0; round < 5; round++) {
    counts.push(...clients.map((client) => store.count(client)));
    counts.push(...[...clients].reverse().map((client) => other.count(client)));
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  const ends = await Promise.allSettled(counts);
  await other.leave();
  await other.close();
  expect(ends.filter(({ status }) => status === 'rejected')).toEqual([]);
});

describe('after the clock of the database was set back', () => {
  const ahead = sql`clock_timestamp() + interval '10 minutes'`;
  const setLog = (client: string, requests: SQL) =>
    database
      .insert(rateLimits)
      .values({ client, requests, counted: 1 } as never)
      .onConflictDoUpdate({ target: rateLimits.client, set: { requests } });

  it('a client that has used up its second waits for a second at most, not for the step', async () => {
    await setLog('step:client', sql`array_fill(${ahead}, ARRAY[10])`);
    const { allowed, remaining, waitMs } = await store.count('step:client');
    expect([allowed, remaining]).toEqual([false, 0]);
    expect(waitMs).toBeGreaterThan(900);
    expect(waitMs).toBeLessThanOrEqual(1000);
    await new Promise((resolve) => setTimeout(resolve, 1010));
    expect(await hasPassed('step:client')).toBe(true);
  });

  it('an instance that ended before counts no more', async () => {
    await setLog('instance:gone', sql`ARRAY[${ahead}]`);
    expect(await store.register()).toMatchObject({ instances: 1 });
  });
});

it('tells each of the requests that come together what is left after it', async () => {
  const decisions = await Promise.all(Array.from({ length: 12 }, () => store.count('in order')));
  expect(decisions.map(({ remaining }) => remaining)).toEqual([9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0]);
  expect(decisions.map(({ allowed }) => allowed)).toEqual([...Array(10).fill(true), false, false]);
});

it('counts beside an instance of another version, which writes such rows itself', async () => {
  await database.execute(sql`INSERT INTO rate_limits VALUES
    ('another', array_fill(clock_timestamp(), ARRAY[9]), 9), ('instance:another', ARRAY[clock_timestamp()], 1)`);
  expect(await store.count('another')).toMatchObject({ allowed: true, remaining: 0 });
  expect(await store.count('another')).toMatchObject({ allowed: false });
  const written = await database.execute(sql`
    SELECT cardinality(requests) AS requests, counted FROM rate_limits WHERE client = 'another'`);
  expect([...written]).toEqual([{ requests: 10, counted: 0 }]);
  expect(await store.register()).toMatchObject({ instances: 2 });
  await database.delete(rateLimits);
  await store.register();
});

it('counts beside an instance with a higher limit, as while the setting is changed', async () => {
  const other = openPostgresStore(url, 20, failSweep);
  await other.register();
  const passed = await Promise.all(Array.from({ length: 15 }, () => other.count('shared')));
  expect(passed.every(({ allowed }) => allowed)).toBe(true);
  expect(await store.count('shared')).toMatchObject({ allowed: false });
  expect(await other.count('shared')).toMatchObject({ allowed: true, remaining: 4 });
  await other.leave();
  await other.close();
});

describe('a store that came back empty, as after a crash of PostgreSQL,', () => {
  it('counts nothing for an instance until that has registered again, and says so once', async () => {
    await database.delete(rateLimits);
    await expect(store.count('forgotten')).rejects.toThrow(StoreForgot);
    expect(await store.register()).toEqual({ instances: 1, isNew: true });
    expect(await store.register()).toEqual({ instances: 1, isNew: false });
    expect((await store.count('forgotten')).allowed).toBe(true);
  });
});

it('a role that may not count stops the start, which says what to do', async () => {
  const role = `reader_${process.pid}`;
  await database.execute(sql.raw(`CREATE ROLE ${role} LOGIN PASSWORD 'few rights'`));
  const limited = new URL(url);
  [limited.username, limited.password] = [role, 'few rights'];
  const rateLimit = createRateLimit(
    { RATE_LIMIT_PER_SECOND: 10, REDIS_URL: undefined },
    limited.href,
    openLog({ LOG_LEVEL: 'silent' }),
    createMetrics(1),
  );
  await expect(rateLimit.warmUp()).rejects.toThrow(
    "DATABASE_URL: the rate limit can't be counted: permission denied for table rate_limits; grant its role what",
  );
  await rateLimit.close();
  await database.execute(sql.raw(`DROP ROLE ${role}`));
});
