/** A test's own connections to PostgreSQL. */
import postgres from 'postgres';

/**
 * One connection unless `max` says otherwise. It doesn't read the types of arrays first, as postgres.js does unless told
 * not to: if the server ended meanwhile, the error would be thrown where nobody can catch it.
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
