/** A command beside other writers: what it holds after it has ended, and what it says while they block it. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Sql } from 'postgres';
import { beforeEach, expect } from 'vitest';
import type { BusinessProfile } from '../../../generated/types/models/index.js';
import { type Commands, useCommand } from '../../support/command.js';
import { useConnection } from '../../support/connection.js';
import { numberWith, PROFILES } from '../../support/numbers.js';
import { until } from '../../support/until.js';

export let command: Commands;
export const LINE = JSON.stringify(numberWith({ phoneNumber: '+19' }));
/** How many numbers there are, and writers that write one number each. */
export const COUNT = 24;

/** Waits until a command's statement with this text waits for a lock. */
const untilWaiting = (sql: Sql, statement: string) =>
  until(async () => {
    await sql`SELECT pg_stat_clear_snapshot()`;
    const rows = await sql`
      SELECT FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE ${`%${statement}%`}
        AND state = 'active' AND wait_event_type = 'Lock'`;
    return rows.length > 0;
  }, statement);

/** Makes the command for all tests of a file, with the numbers before each test. */
export function useWriters(): void {
  command = useCommand();
  beforeEach(async () => {
    const { sql } = command;
    await sql`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`;
    for (const { id } of PROFILES) await sql`INSERT INTO business_profiles VALUES (${id}, 'Before', 'approved')`;
    await sql`
      INSERT INTO branded_phone_numbers (phone_number, business_profile_id)
      SELECT '+1' || i, ${PROFILES[0]?.id ?? ''} FROM generate_series(1, ${COUNT}) AS i`;
    await sql`
      INSERT INTO carrier_statuses
      SELECT phone_number, 'AT&T', 'brandedCallerId', 'approved.optIn' FROM branded_phone_numbers`;
  });
}

/** Fails unless the command, which this signal ends while it runs a statement with this text, then holds no locks. */
export async function expectNoLocks(line: string, signal: NodeJS.Signals, statement: string): Promise<void> {
  await writeFile(join(command.folder, 'line.ndjson'), LINE);
  await writeFile(join(command.folder, 'gone.txt'), '+11');
  const sql = useConnection(command.databaseUrl);
  await sql`BEGIN`;
  // The command waits for this lock while it writes.
  await sql`LOCK TABLE postings IN ACCESS EXCLUSIVE MODE`;
  const { child, finished } = command.start(line.split(' '), {
    DATABASE_URL: `${command.databaseUrl}?application_name=ended`,
  });
  await untilWaiting(sql, statement);
  child.kill(signal);
  await finished;
  await until(async () => {
    await sql`SELECT pg_stat_clear_snapshot()`;
    const sessions = await sql`
      SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'ended %'`;
    return sessions.length === 0;
  }, 'its sessions end');
  await sql`LOCK TABLE branded_phone_numbers IN EXCLUSIVE MODE NOWAIT`;
  await sql`COMMIT`;
  expect(await sql`SELECT FROM items`).toHaveLength(COUNT);
}

/** Fails unless an import says once that `blocker` is in its way after `blocking`, until `ending`. */
export async function expectReport(blocking: string, ending: string, blocker: string): Promise<void> {
  const sql = useConnection(command.databaseUrl);
  const [profile] = PROFILES;
  const line = numberWith({
    phoneNumber: '+11',
    businessProfile: { ...profile, businessName: 'After' } as BusinessProfile,
  });
  await writeFile(join(command.folder, 'blocked.ndjson'), JSON.stringify(line));
  await sql.unsafe(`SET application_name = 'a writer'; BEGIN; ${blocking}`);
  const { out, finished } = command.start(['import', 'blocked.ndjson'], { DATABASE_URL: command.databaseUrl });
  await until(() => out.stderr.includes('waiting'), 'it reports a blocker', 60_000);
  await sql.unsafe(ending);
  const { code, stderr } = await finished;
  expect(code).toBe(0);
  expect(stderr).toMatch(
    new RegExp(
      `^(?:wrote .*\\n)*waiting for transactions of other programs to end:\\n  ${blocker}, since [-0-9: +]+\\n(?:wrote .*\\n)*$`,
    ),
  );
}
