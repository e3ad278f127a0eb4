import { like, sql } from 'drizzle-orm';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { closeDatabase, type Database, openDatabase } from '../src/database.js';
import { rateLimits } from '../src/schema.js';
import { SlidingLogPostgres } from '../src/slidingLogPostgres.js';
import { createDatabase } from './database.js';

let store: SlidingLogPostgres;
let database: Database;
let url: string;
let drop: () => Promise<void>;

beforeAll(async () => {
  ({ url, drop } = await createDatabase());
  database = openDatabase(url);
  store = new SlidingLogPostgres(url, 10, 1);
});
afterAll(async () => {
  await store.close();
  await closeDatabase(database);
  await drop();
});

const hasPassed = (client: string) =>
  store.count(client).then(
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

it('is never in a deadlock with another instance, in whatever order their clients come', async () => {
  const other = new SlidingLogPostgres(url, 10, 1);
  const clients = Array.from({ length: 40 }, (_, i) => `crossing:${i}`);
  const counts: Promise<unknown>[] = [];
  for (let round = 0; round < 5; round++) {
    counts.push(...clients.map((client) => store.count(client)));
    counts.push(...[...clients].reverse().map((client) => other.count(client)));
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  const ends = await Promise.allSettled(counts);
  await other.close();
  expect(ends.filter(({ status }) => status === 'rejected')).toEqual([]);
});
