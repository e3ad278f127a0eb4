/** An import that fails in the middle changes nothing. */
import { Readable } from 'node:stream';
import { afterEach, expect, test } from 'vitest';
import { importNumbers } from '../../src/numbers/import.js';
import { database, manyNumbers, ndjson, run, stored, useDatabase } from './importing.js';

useDatabase();

afterEach(async () => {
  expect(await stored()).toEqual([]);
  expect(await run(manyNumbers(10))).toMatchObject({ numbers: 10 });
});

test('An import whose input fails in the middle changes nothing, and the next one works', async () => {
  async function* failing() {
    yield ndjson(manyNumbers(2000));
    throw new Error('the disk is gone');
  }
  await expect(importNumbers(database, Readable.from(failing()))).rejects.toThrow('the disk is gone');
});

test('An import whose connection is cut while the tables are written changes nothing, and the next one works', async () => {
  await database.$client.begin(async (sql) => {
    // The import waits for this in the middle of its writing.
    await sql`LOCK TABLE postings IN SHARE MODE`;
    const importing = run(manyNumbers(2000), {}, 1_000_000);
    importing.catch(() => {});
    const cut = () => database.$client`
      SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = current_database() AND wait_event_type = 'Lock'`;
    await expect.poll(async () => (await cut()).length, { timeout: 20_000 }).toBe(1);
    await expect(importing).rejects.toThrow();
  });
});
