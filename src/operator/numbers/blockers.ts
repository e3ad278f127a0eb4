/** Reports the sessions that block a command. */
import type { Database } from '../../database/connect.js';
import { escapeHidden } from '../../messages/shown.js';

/** The pools of commands that have reported their blockers: once is enough. */
const reported = new WeakSet<Database>();

/** Reports on standard error, once per command, which other programs' sessions block the session `pid`. */
export async function reportBlockers(database: Database, pid: number): Promise<void> {
  if (reported.has(database)) return;
  const sessions = await database.$client<{ session: string }[]>`
    SELECT concat_ws(', ', 'process ' || blocker.pid, usename, nullif(application_name, ''), state,
      'since ' || xact_start::timestamptz(0), coalesce('holds ' || (
        SELECT string_agg(mode, ' and ') FROM pg_locks
        WHERE pg_locks.pid = blocker.pid AND relation = 'branded_phone_numbers'::regclass AND granted
      ), 'is waiting, too')) AS session
    FROM (SELECT DISTINCT unnest(pg_blocking_pids(${pid})) AS pid) AS blocker LEFT JOIN pg_stat_activity USING (pid)
    WHERE application_name IS DISTINCT FROM current_setting('application_name')`;
  if (sessions.length === 0 || reported.has(database)) return;
  reported.add(database);
  const list = sessions.map(({ session }) => escapeHidden(session)).join('\n  ');
  console.error(`waiting for other sessions that write branded_phone_numbers:\n  ${list}`);
}
