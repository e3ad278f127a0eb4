/** What the service reads is collected by minor garbage collections: a full one stops it for some 10 ms. */
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { rowsOf } from '../../src/database/connection.js';
import { prepareFindKeys } from '../../src/keys/identify.js';
import { openPostgresStore } from '../../src/service/rateLimit/postgresStore.js';
import { useDatabase } from '../support/database.js';

setFlagsFromString('--expose-gc');
const collectGarbage: (options?: { type: 'minor' }) => void = runInNewContext('gc');

const database = useDatabase();
const hundred = (name: string) => Array.from({ length: 100 }, (_, index) => `${name} ${index}`);
const findKeys = prepareFindKeys();
let store: ReturnType<typeof openPostgresStore>;
beforeAll(async () => {
  store = openPostgresStore(database.url, 10, () => {});
  await database.sql`
    INSERT INTO api_keys (hash, name, created_at) SELECT 'key ' || i, 'many', now() FROM generate_series(0, 99) AS i`;
});
afterAll(() => store.close());

const readPage = () =>
  database.drizzle.connection.run(({ $client }) =>
    rowsOf($client.unsafe('SELECT repeat($1::text, 100000)', ['x'], { prepare: true }).raw()),
  );
const readKeys = () => database.drizzle.connection.run((db) => findKeys(db, hundred('key')));
const countRequests = (index: number) => Promise.all(hundred(`client ${index}`).map((name) => store.consume(name)));

/** Returns how many kilobytes a call of `read` leaves for a full garbage collection. */
async function leftBy(read: (index: number) => Promise<unknown>): Promise<number> {
  const usedKilobytes = () => {
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return (heapUsed + arrayBuffers) / 1000;
  };
  collectGarbage();
  for (let i = 0; i < 100; i++) {
    await read(i);
    collectGarbage({ type: 'minor' });
  }
  await sleep(20);
  collectGarbage({ type: 'minor' });
  const before = usedKilobytes();
  collectGarbage();
  // Buffers are freed after the collection.
  await sleep(100);
  return (before - usedKilobytes()) / 100;
}

it.each<[string, (index: number) => Promise<unknown>]>([
  ['page of 100 KB', readPage],
  ['look-up of 100 keys', readKeys],
  ['count of 100 clients', countRequests],
])('a %s leaves at most 18 KB for a full garbage collection', async (_name, read) => {
  // The least of three: what ran in this process before may leave something, too.
  const left = [await leftBy(read), await leftBy(read), await leftBy(read)];
  expect(Math.min(...left)).toBeLessThan(18);
});
