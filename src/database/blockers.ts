/** Finds what the sessions of this process wait for, so that a command can say it, and cancels these sessions. */
import { setTimeout as sleep } from 'node:timers/promises';
import { escapeHidden } from '../messages/shown.js';
import { type Connection, type Transaction, withConnection } from './connection.js';

/** Milliseconds between looks: until one finds something, which may take several, between the waits of a command; and later. */
const [PAUSE_MS, LONG_PAUSE_MS] = [200, 5000];
const LOOK_AFTER_MS = 1000;
const LIMITS = { statementTimeout: 1000 };

/** What sessions wait for. `event` completes "waiting for"; `blockers` describes what they wait for. */
export type Wait = { event: string; blockers: string[] };

interface Options {
  /** Returns whether to look for blockers now; by default after a second. */
  mayBeBlocked?(): boolean;
  /** The advisory lock of this program: who holds it is a blocker, too. */
  lock?: number;
  /** Called with all that each look finds. */
  onFound?(wait: Wait): void;
}

/** Runs `work`, and looks for what sessions of this process wait for in the database at `url`; by default reports it. */
export function watchingWaits<T>(
  url: string,
  { mayBeBlocked, lock, onFound = (wait) => reportOnce(url, wait) }: Options,
  work: () => Promise<T>,
): Promise<T> {
  const end = new AbortController();
  const lookAt = performance.now() + LOOK_AFTER_MS;
  const look = (connection: Connection) => connection.transaction('READ COMMITTED', (sql) => findWaits(sql, lock));
  const watch = async () => {
    for (let isFound = false; ; ) {
      await sleep(isFound ? LONG_PAUSE_MS : PAUSE_MS, undefined, { signal: end.signal });
      const isDue = mayBeBlocked?.() ?? performance.now() > lookAt;
      // On a connection that is closed then: a pooler may have too few. A look may fail, since PostgreSQL may be restarting.
      const found = isDue ? await withConnection(url, look, LIMITS).catch(() => []) : [];
      isFound = found.length > 0;
      end.signal.throwIfAborted();
      for (const { event, blockers } of found) onFound({ event, blockers: blockers.map(escapeHidden) });
    }
  };
  // Ends with the work.
  watch().catch(() => {});
  return work().finally(() => end.abort());
}

/** The events that commands have reported, each after the URL of its database. */
const reported = new Set<string>();

/** Reports on standard error what a command waits for, once for each event. */
export function reportOnce(url: string, { event, blockers }: Wait): void {
  const key = `${url} ${event}`;
  if (!reported.has(key)) console.error([`waiting for ${event}:`, ...blockers].join('\n  '));
  reported.add(key);
}

/**
 * Cancels, within a second, what other sessions of this process run in the database at `url`. This ends a commit that waits for a
 * standby, which is then committed on this server; PostgreSQL would wait until the standby is back, even without this process.
 */
export const cancelSessions = (url: string): Promise<unknown> =>
  withConnection(url, (connection) => connection.run(({ $client }) => cancelOthers($client)), LIMITS).catch(() => {});

const cancelOthers = (sql: Transaction) => sql`
  SELECT pg_cancel_backend(pid) FROM pg_stat_activity
  WHERE datname = current_database() AND application_name = current_setting('application_name') AND pid <> pg_backend_pid()`;

const findWaits = (sql: Transaction, lock: number | undefined): Promise<Wait[]> =>
  sql.unsafe(`
  WITH own AS (
    SELECT * FROM pg_stat_activity WHERE application_name = current_setting('application_name')
  ), blocking AS (
    SELECT unnest(pg_blocking_pids(pid)) AS pid FROM own WHERE wait_event_type = 'Lock'
    UNION SELECT pid FROM pg_locks
    WHERE (locktype, objid, granted) = ('advisory', ${lock ?? 'NULL'}, true)
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  ), transaction (blocker) AS (
    SELECT concat_ws(', ', 'process ' || pid, usename, nullif(application_name, ''), nullif(backend_type, 'client backend'),
      state, 'since ' || xact_start::timestamptz(0), CASE wait_event_type WHEN 'Lock' THEN 'is waiting, too' END)
    FROM blocking JOIN pg_stat_activity USING (pid)
    WHERE application_name IS DISTINCT FROM current_setting('application_name')
    UNION ALL
    SELECT concat_ws(', ', 'prepared transaction ' || gid, owner, 'since ' || prepared::timestamptz(0))
    FROM pg_prepared_xacts WHERE database = current_database() AND EXISTS (SELECT FROM blocking WHERE pid = 0)
  )
  SELECT 'transactions of other programs to end' AS event, json_agg(blocker) AS blockers
  FROM transaction HAVING count(*) > 0
  UNION ALL
  SELECT 'commits to be confirmed by', json_build_array(format('a synchronous standby (synchronous_standby_names = %L)', names))
  FROM current_setting('synchronous_standby_names') AS names WHERE EXISTS (SELECT FROM own WHERE wait_event = 'SyncRep')`);
