/** Reports the sessions that block a command. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Database } from '../../database/connect.js';
import { escapeHidden } from '../../messages/shown.js';

/** Milliseconds between attempts to find a blocker. An attempt fails if it comes between two waits of the steps. */
const RETRY_INTERVAL_MS = 200;

/** The pools of commands that have reported their blockers: once is enough. */
const reported = new WeakSet<Database>();

/** Reports on standard error, once per command, what blocks its sessions, if `isBlocked`. Ends when `signal` is aborted. */
export async function reportBlockers(database: Database, isBlocked: () => boolean, signal: AbortSignal): Promise<void> {
  while (!reported.has(database)) {
    await sleep(RETRY_INTERVAL_MS, undefined, { signal });
    if (!isBlocked()) continue;
    // A failed query is repeated: PostgreSQL may be restarting.
    const blockers = await findBlockers(database).catch(() => []);
    if (blockers.length === 0 || signal.aborted) continue;
    reported.add(database);
    const list = blockers.map(({ blocker }) => escapeHidden(blocker)).join('\n  ');
    console.error(`waiting for transactions of other programs to end:\n  ${list}`);
  }
}

/** Describes each session and prepared transaction of other programs that a session of this command waits for. */
const findBlockers = ({ $client: sql }: Database): Promise<{ blocker: string }[]> =>
  sql.unsafe(`
  WITH blocking AS (
    SELECT DISTINCT unnest(pg_blocking_pids(pid)) AS pid FROM pg_stat_activity
    WHERE application_name = current_setting('application_name') AND wait_event_type = 'Lock'
  )
  SELECT concat_ws(', ', 'process ' || pid, usename, nullif(application_name, ''), state,
    'since ' || xact_start::timestamptz(0), CASE wait_event_type WHEN 'Lock' THEN 'is waiting, too' END) AS blocker
  FROM blocking JOIN pg_stat_activity USING (pid)
  WHERE application_name IS DISTINCT FROM current_setting('application_name')
  UNION ALL
  SELECT concat_ws(', ', 'prepared transaction ' || gid, owner, 'since ' || prepared::timestamptz(0))
  FROM pg_prepared_xacts WHERE database = current_database() AND EXISTS (SELECT FROM blocking WHERE pid = 0)`);
