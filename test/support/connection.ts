/** Connections of tests to PostgreSQL. */
import postgres from 'postgres';
import { onTestFinished } from 'vitest';
import { until } from './until.js';

/**
 * Returns a pool of one connection, unless `options` has another `max`. `fetch_types` is off: if the server stops while
 * postgres.js fetches the types of arrays, the error can't be caught.
 */
export function connectTo(url: string, options: postgres.Options<Record<string, never>> = {}): postgres.Sql {
  return postgres(url, { max: 1, fetch_types: false, onnotice: () => {}, ...options });
}

/** Connects for the current test. */
export function useConnection(url: string, options?: postgres.Options<Record<string, never>>): postgres.Sql {
  const sql = connectTo(url, options);
  onTestFinished(() => sql.end({ timeout: 0 }));
  return sql;
}

/** Waits until a session of this database waits for a lock. */
export function untilLockIsAwaited(sql: postgres.Sql, what: string): Promise<void> {
  const isAwaited = async () => {
    // Within a transaction, PostgreSQL would keep showing what it showed first.
    await sql`SELECT pg_stat_clear_snapshot()`;
    const sessions = await sql`
      SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`;
    return sessions.length > 0;
  };
  return until(isAwaited, what);
}

/** Runs `work` while a transaction holds the locks of the statement `lock`; returns its result. */
export async function whileLocked<T>(url: string, lock: string, work: () => Promise<T>): Promise<T> {
  const sql = connectTo(url);
  try {
    await sql.unsafe(`BEGIN; ${lock}`);
    return await work();
  } finally {
    await sql.end();
  }
}
