/** What the service reads is collected by minor garbage collections: a full one stops it for some 10 ms. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { rowsOf } from '../../src/database/connection.js';
import { useDatabase } from '../support/database.js';
import { collectGarbage } from '../support/garbage.js';

const database = useDatabase();

it.each([
  ['a page', 'SELECT repeat($1::text, 500000)', true],
  ['many rows', 'SELECT $1::text || i FROM generate_series(1, 5000) AS i', false],
])('%s of half a megabyte is not left for a full garbage collection', async (_what, statement, isRaw) => {
  const usedMegabytes = () => {
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return (heapUsed + arrayBuffers) / 1e6;
  };
  const read = () =>
    database.drizzle.connection.run(({ $client }) => {
      const query = $client.unsafe(statement, ['x'], { prepare: true });
      return isRaw ? rowsOf<unknown>(query.raw()) : rowsOf<unknown>(query);
    });
  await read();
  collectGarbage();
  for (let i = 0; i < 30; i++) {
    await read();
    collectGarbage({ type: 'minor' });
  }
  await sleep(20);
  collectGarbage({ type: 'minor' });
  const before = usedMegabytes();
  collectGarbage();
  // Buffers are freed after the collection.
  await sleep(100);
  expect(before - usedMegabytes()).toBeLessThan(4);
});
