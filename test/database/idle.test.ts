/** Sessions that are idle, in a database that ends such sessions, and sessions that were cut off silently. */
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, inject, it, vi } from 'vitest';
import { openLog } from '../../src/log.js';
import { exportNumbers } from '../../src/operator/numbers/export.js';
import { importNumbers } from '../../src/operator/numbers/import.js';
import { filterOf } from '../../src/page/filter.js';
import { connectTo } from '../support/connection.js';
import { createDatabase, usePool } from '../support/database.js';
import { ndjson } from '../support/ndjson.js';
import { numberWith } from '../support/numbers.js';
import { useServiceOn } from '../support/service.js';

/** Has a database end sessions that are idle for `limitMs`, by this setting. */
async function endIdle(url: string, setting: string, limitMs: number): Promise<void> {
  const admin = connectTo(inject('postgresUrl'));
  await admin.unsafe(`ALTER DATABASE ${new URL(url).pathname.slice(1)} SET ${setting} = ${limitMs}`);
  await admin.end();
}

describe('a database that ends idle sessions', () => {
  it('is served without an error or a line in the log', async () => {
    const log = openLog({ LOG_LEVEL: 'silent' });
    const [warn, error] = [vi.spyOn(log, 'warn'), vi.spyOn(log, 'error')];
    const url = await createDatabase();
    // On a busy machine, PostgreSQL ends a session late, and the service sends a statement late.
    await endIdle(url, 'idle_session_timeout', 500);
    const service = await useServiceOn(url, { RATE_LIMIT_PER_SECOND: '100' }, log);
    for (let i = 0; i < 3; i++) {
      await sleep(1500);
      for (const path of ['/v1/brandedPhoneNumbers', '/readyz'])
        expect((await fetch(service.url + path)).status).toBe(200);
    }
    // On a busy machine, another connection takes longer than a count may.
    const logged = [...warn.mock.calls, ...error.mock.calls].map((line) => JSON.stringify(line));
    expect(logged.filter((line) => !line.includes('no response within 150 ms'))).toEqual([]);
  });

  it('lets an export wait for what it writes to', async () => {
    const url = await createDatabase();
    await importNumbers(url, Readable.from([ndjson([numberWith({ phoneNumber: '+11' })])]));
    await endIdle(url, 'idle_in_transaction_session_timeout', 500);
    const writing = exportNumbers(url, filterOf({}), () => sleep(1000));
    await expect(writing).resolves.toMatchObject({ numbers: 1 });
  });
});

it('has PostgreSQL probe each connection, so that sessions that were cut off end within half a minute', async () => {
  const { $client: sql } = usePool(await createDatabase());
  expect(
    await sql`SELECT current_setting('tcp_keepalives_idle') AS idle, current_setting('tcp_keepalives_interval') AS interval,
    current_setting('tcp_keepalives_count') AS count`,
  ).toEqual([{ idle: '10', interval: '5', count: '3' }]);
});
