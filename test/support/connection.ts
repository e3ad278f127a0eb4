/** A test's own connections to PostgreSQL. */
import postgres from 'postgres';

/**
 * One connection unless `max` says otherwise. It doesn't read the types of arrays first, as postgres.js does unless told
 * not to: if the server ended meanwhile, the error would be thrown where nobody can catch it.
 */
export function connectTo(url: string, options: postgres.Options<Record<string, never>> = {}): postgres.Sql {
  return postgres(url, { max: 1, fetch_types: false, onnotice: () => {}, ...options });
}
