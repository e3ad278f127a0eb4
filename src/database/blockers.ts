/** Finds the sessions that block this process, so that a command can name them. */
import { setTimeout as sleep } from 'node:timers/promises';
import { escapeHidden } from '../messages/shown.js';
import { Connection, type Transaction } from './connection.js';

/** Milliseconds between attempts to find a blocker. An attempt fails if it comes between two waits of a command. */
const RETRY_INTERVAL_MS = 200;

/** The time limit of the query, in milliseconds. */
const LIMITS = { statementTimeout: 1000 };

interface Options {
  /** Returns whether to look for blockers now. */
  mayBeBlocked(): boolean;
  /** The advisory lock of this program: who holds it is a blocker, too. */
  lock?: number | undefined;
}

/**
 * Finds, until `signal` is aborted, what blocks sessions of this process in the database at `url`.
 * @returns at each look that finds some, a description of each session and prepared transaction of other programs
 */
export async function* blockersOf(
  url: string,
  signal: AbortSignal,
  { mayBeBlocked, lock }: Options,
): AsyncGenerator<string[], void> {
  let connection: Connection | undefined;
  try {
    for (;;) {
      await sleep(RETRY_INTERVAL_MS, undefined, { signal });
      if (!mayBeBlocked()) continue;
      // A failed attempt has closed it: PostgreSQL may be restarting.
      if (!connection || connection.failure) connection = new Connection(url, LIMITS);
      const blockers = await connection.transaction('READ COMMITTED', (sql) => findBlockers(sql, lock)).catch(() => []);
      if (blockers.length > 0 && !signal.aborted) yield blockers.map(({ blocker }) => escapeHidden(blocker));
    }
  } catch {
    // The signal, or an address that can't be used any more, as the work beside this finds, too.
  } finally {
    await connection?.close(0);
  }
}

/** Reports on standard error what blocks a command. */
export function reportBlockers(blockers: string[]): void {
  console.error(['waiting for transactions of other programs to end:', ...blockers].join('\n  '));
}

const findBlockers = (sql: Transaction, lock: number | undefined): Promise<{ blocker: string }[]> =>
  sql.unsafe(`
  WITH blocking AS (
    SELECT unnest(pg_blocking_pids(pid)) AS pid FROM pg_stat_activity
    WHERE application_name = current_setting('application_name') AND wait_event_type = 'Lock'
    UNION SELECT pid FROM pg_locks
    WHERE (locktype, objid, granted) = ('advisory', ${lock ?? 'NULL'}, true)
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  )
  SELECT concat_ws(', ', 'process ' || pid, usename, nullif(application_name, ''), nullif(backend_type, 'client backend'),
    state, 'since ' || xact_start::timestamptz(0), CASE wait_event_type WHEN 'Lock' THEN 'is waiting, too' END) AS blocker
  FROM blocking JOIN pg_stat_activity USING (pid)
  WHERE application_name IS DISTINCT FROM current_setting('application_name')
  UNION ALL
  SELECT concat_ws(', ', 'prepared transaction ' || gid, owner, 'since ' || prepared::timestamptz(0))
  FROM pg_prepared_xacts WHERE database = current_database() AND EXISTS (SELECT FROM blocking WHERE pid = 0)`);
