/** The connection to PostgreSQL: opened here, migrated here, closed here. */
import { join } from 'node:path';
import { sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/postgres-js';
import { migrate } from 'drizzle-orm/postgres-js/migrator';
import { packageFolder } from './contract.js';
import { openPool } from './pool.js';
import * as schema from './schema.js';

export type Database = ReturnType<typeof openDatabase>;

/** Any number that no other program on the database takes its advisory locks by. */
const MIGRATION_LOCK = 7_245_983;

/** The arrays that are sent as parameters, by their object identifiers, which are PostgreSQL's own and never change. */
const arrayTypes = Object.fromEntries(
  Object.entries({ textArray: 1009, integerArray: 1007, uuidArray: 2951 }).map(([name, to]) => [
    name,
    { to, from: [], serialize: arrayLiteral, parse: (text: string) => text },
  ]),
);

function arrayLiteral(value: unknown): string {
  if (!Array.isArray(value)) return String(value);
  return `{${value.map((each) => (each === null ? 'NULL' : `"${String(each).replace(/["\\]/g, '\\$&')}"`))}}`;
}

interface Options {
  connections?: number;
  /** Milliseconds after which the database itself gives up a statement; 0 for never. */
  statementTimeout?: number;
  onRenewal?: () => void;
}

/** Opens a pool of `connections` on `url`; nothing is sent before the first query. */
export function openDatabase(
  url: string,
  { connections = 10, statementTimeout = 0, onRenewal = () => {} }: Options = {},
) {
  const { client, renew } = openPool(
    url,
    {
      max: connections,
      onnotice: () => {},
      // postgres.js would ask each new connection for the array types, and end the process when it breaks meanwhile.
      fetch_types: false,
      types: arrayTypes,
      connection: {
        // The queries are written so that one plan fits all values; planning each time anew would cost more than it finds.
        plan_cache_mode: 'force_generic_plan',
        // In words: postgres.js leaves out what is false. A walk ends after a few rows; a bitmap would read its whole range.
        enable_bitmapscan: 'off',
        jit: 'off',
        ...(statementTimeout > 0 ? { statement_timeout: statementTimeout } : {}),
      },
    },
    onRenewal,
  );
  return Object.assign(drizzle(client, { schema }), { renew });
}

/** Closes the pool; what still runs after `timeout` seconds is cut off. */
export async function closeDatabase(database: Database, timeout = 5): Promise<void> {
  await database.$client.end({ timeout });
}

/** Brings the schema up to date. Several instances may call it at once: one works, the others wait for it. */
export async function migrateDatabase(url: string): Promise<void> {
  // A connection of its own: an open one would not know the types that a migration creates.
  const migrated = openDatabase(url, { connections: 1 });
  const locked = openDatabase(url, { connections: 1 });
  try {
    // The lock is a transaction's, not a session's, which a pooler in transaction mode would hand to others.
    await locked.transaction(async (transaction) => {
      await transaction.execute(sql`SELECT pg_advisory_xact_lock(${MIGRATION_LOCK})`);
      await migrate(migrated, { migrationsFolder: join(packageFolder, 'drizzle') });
    });
  } finally {
    await closeDatabase(migrated);
    await closeDatabase(locked);
  }
}
