/** Statements that change many rows need little memory. */
import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { expectDerivedToAgree } from '../support/derived.js';
import { PROFILE, second, first as sql, useSessions } from '../support/sessions.js';

useSessions();

const NUMBERS = 25_000;
/** For PostgreSQL's list of foreign keys to check, a list of phone numbers, and `work_mem` per plan node. */
const MAX_MB = 40;

/** Returns the private memory of a process, in megabytes. */
async function memory(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/RssAnon:\s+(\d+)/.exec(status)?.[1]) / 1024;
}

test('100,000 entries are inserted, updated and deleted by one statement each', async () => {
  const [backend] = await sql`SELECT pg_backend_pid() AS pid`;
  await sql`
    INSERT INTO branded_phone_numbers (phone_number, business_profile_id)
    SELECT '+1' || 2000000000 + i, ${PROFILE} FROM generate_series(1, ${NUMBERS}) AS i`;
  for (const statement of [
    `INSERT INTO carrier_statuses SELECT phone_number, carrier, feature, 'approved.optIn'
     FROM branded_phone_numbers, unnest('{AT&T,Verizon}'::text[]) AS carrier, unnest(enum_range(NULL::feature)) AS feature`,
    `UPDATE carrier_statuses SET detailed_status = 'submitted.optOut'`,
    'DELETE FROM carrier_statuses',
  ]) {
    let isRunning = true;
    const running = sql.unsafe(statement).finally(() => (isRunning = false));
    let peak = 0;
    for (; isRunning; await sleep(50)) peak = Math.max(peak, await memory(backend?.pid));
    expect((await running).count).toBe(4 * NUMBERS);
    expect(peak).toBeLessThan(MAX_MB);
  }
  // Compares one number in a thousand, since comparing all in Node would take too long.
  await second`DELETE FROM branded_phone_numbers WHERE right(phone_number, 3) <> '500'`;
  await expectDerivedToAgree(second);
}, 900_000);
