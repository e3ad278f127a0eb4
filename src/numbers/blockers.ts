/** The sessions of other programs that a command waits for. */
import type { Database } from '../database/connect.js';
import { printable } from '../messages/shorten.js';

/** The commands that have reported them. */
const reported = new WeakSet<Database>();

/** Reports once on standard error which sessions of others the session `pid` waits for, as far as its role may see. */
export async function reportBlockers(database: Database, pid: number): Promise<void> {
  if (reported.has(database)) return;
  const sessions = await database.$client<{ session: string }[]>`
    SELECT concat_ws(', ', 'process ' || blocker.pid, usename, nullif(application_name, ''), state,
      'since ' || xact_start::timestamptz(0), coalesce('holds ' || (
        SELECT string_agg(mode, ' and ') FROM pg_locks
        WHERE pg_locks.pid = blocker.pid AND relation = 'branded_phone_numbers'::regclass AND granted
      ), 'waits as well')) AS session
    FROM (SELECT DISTINCT unnest(pg_blocking_pids(${pid})) AS pid) AS blocker LEFT JOIN pg_stat_activity USING (pid)
    WHERE application_name IS DISTINCT FROM current_setting('application_name')`;
  if (sessions.length === 0 || reported.has(database)) return;
  reported.add(database);
  const list = sessions.map(({ session }) => printable(session)).join('\n  ');
  console.error(`waiting for other writers of branded_phone_numbers:\n  ${list}`);
}
