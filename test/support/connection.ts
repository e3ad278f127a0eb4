/** Connections of tests to PostgreSQL. */
import postgres from 'postgres';

/**
 * Returns a pool of one connection, unless `options` has another `max`. `fetch_types` is off: if the server stops while
 * postgres.js fetches the types of arrays, the error can't be caught.
 */
export function connectTo(url: string, options: postgres.Options<Record<string, never>> = {}): postgres.Sql {
  return postgres(url, { max: 1, fetch_types: false, onnotice: () => {}, ...options });
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
