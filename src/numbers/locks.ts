/** The lock of commands that change many numbers. */
import type { TransactionSql } from 'postgres';
import type { Database } from '../database/connect.js';
import { printable } from '../messages/shorten.js';

/** How long a command waits for other writers before it says so. */
const PATIENCE_MS = 3000;
/** Whose command has said so. */
const said = new WeakSet<Database>();

/**
 * Keeps all other writers out until the transaction ends, so that nothing comes between what is compared and what is
 * written; readers go on. It waits its turn: writers that were there first end, later ones wait, a vacuum is canceled. All
 * writers of the sources pass this table first (drizzle/0001_derive.sql), so that one lock is enough.
 */
export async function lockOutWriters(database: Database, sql: TransactionSql): Promise<void> {
  const [{ pid }] = await sql<[{ pid: number }]>`SELECT pg_backend_pid() AS pid`;
  // Where it can't be asked who writes, nothing is said.
  const timer = setTimeout(() => void sayWhoWrites(database, pid).catch(() => {}), PATIENCE_MS);
  try {
    await sql`LOCK TABLE branded_phone_numbers IN EXCLUSIVE MODE`;
  } finally {
    clearTimeout(timer);
  }
}

/** Says once on standard error for whom the session `pid` waits, as far as its role may see. */
async function sayWhoWrites(database: Database, pid: number): Promise<void> {
  if (said.has(database)) return;
  const writers = await database.$client<{ writer: string }[]>`
    SELECT concat_ws(', ', 'process ' || writer.pid, usename, nullif(application_name, ''), state,
      'since ' || xact_start::timestamptz(0), coalesce('holds ' || (
        SELECT string_agg(mode, ' and ') FROM pg_locks
        WHERE pg_locks.pid = writer.pid AND relation = 'branded_phone_numbers'::regclass AND granted
      ), 'waits as well')) AS writer
    FROM (SELECT DISTINCT unnest(pg_blocking_pids(${pid})) AS pid) AS writer LEFT JOIN pg_stat_activity USING (pid)`;
  if (writers.length === 0) return;
  said.add(database);
  const list = writers.map(({ writer }) => printable(writer)).join('\n  ');
  console.error(`waiting for other writers of branded_phone_numbers:\n  ${list}`);
}
