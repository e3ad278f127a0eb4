/** An import that fails in the middle changes nothing. */
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { importNumbers } from '../../src/numbers/import.js';
import { database, manyNumbers, ndjson, number, run, stored, useDatabase, versions } from './importing.js';

useDatabase();

describe('all or nothing', () => {
  const lines = ndjson(manyNumbers(2000)).split(/(?<=\n)/);

  test('when one line of many is wrong', async () => {
    await run([number()]);
    const before = await versions();
    await expect(run([...manyNumbers(2000), { wrong: true }])).rejects.toThrow('line 2001: ');
    expect(await versions()).toEqual(before);
  });

  test('when the input fails in the middle', async () => {
    async function* failing() {
      yield* lines;
      throw new Error('the disk is gone');
    }
    await expect(importNumbers(database, Readable.from(failing()))).rejects.toThrow('the disk is gone');
    expect(await stored()).toEqual([]);
    expect(await run(manyNumbers(10))).toMatchObject({ numbers: 10 });
  });

  /** Kills the connections that match. */
  const cut = async (condition: string) => {
    const [row] = await database.$client.unsafe(`
      SELECT count(pg_terminate_backend(pid))::int FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND ${condition}`);
    return row?.count;
  };

  test('when the connection is cut while the file is read', async () => {
    let isCut = false;
    async function* interrupted() {
      yield* lines;
      // The lines may be read before the COPY that takes them has begun.
      await expect
        .poll(() => cut("query LIKE 'COPY %' AND state = 'active' AND wait_event = 'ClientRead'"), { timeout: 20_000 })
        .toBe(1);
      isCut = true;
      for (;;) yield await sleep(5, '\n');
    }
    await expect(importNumbers(database, Readable.from(interrupted()))).rejects.toThrow(/CONNECTION|terminat/);
    expect(isCut).toBe(true);
    expect(await stored()).toEqual([]);
    expect(await run(manyNumbers(10))).toMatchObject({ numbers: 10 });
  });

  test('when the connection is cut while the tables are written', async () => {
    await database.$client.begin(async (sql) => {
      // The import waits for this in the middle of its writing.
      await sql`LOCK TABLE postings IN SHARE MODE`;
      const importing = run(manyNumbers(2000), {}, 1_000_000);
      importing.catch(() => {});
      await expect.poll(() => cut("wait_event_type = 'Lock'"), { timeout: 20_000 }).toBe(1);
      await expect(importing).rejects.toThrow();
    });
    expect(await stored()).toEqual([]);
    expect(await run(manyNumbers(10))).toMatchObject({ numbers: 10 });
  });
});
