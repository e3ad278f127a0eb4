/** Statements that change very many rows: they finish, within bounded memory. */
import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { expectDerivedToAgree } from '../support/derived.js';
import { PROFILE, second, first as sql, useSessions } from '../support/sessions.js';

useSessions();

const NUMBERS = 75_000;
/** PostgreSQL's own list of foreign keys to check, a list of the phone numbers, and `work_mem` for each node of a plan. */
const MAX_MB = 70;

/** Private memory of the process of `first`, in megabytes. */
async function memory(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/RssAnon:\s+(\d+)/.exec(status)?.[1]) / 1024;
}

test('300,000 entries are written, changed and deleted by a statement each', async () => {
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
    let most = 0;
    for (; isRunning; await sleep(50)) most = Math.max(most, await memory(backend?.pid));
    expect((await running).count).toBe(4 * NUMBERS);
    expect(most).toBeLessThan(MAX_MB);
  }
  // Comparing all numbers in Node would take far longer: of each thousand, one.
  await second`DELETE FROM branded_phone_numbers WHERE right(phone_number, 3) <> '500'`;
  await expectDerivedToAgree(second);
}, 900_000);
