/** The connection to PostgreSQL: opened here, migrated here, closed here. */
import { join } from 'node:path';
import { drizzle } from 'drizzle-orm/postgres-js';
import { migrate } from 'drizzle-orm/postgres-js/migrator';
import postgres from 'postgres';
import { packageFolder } from './contract.js';
import * as schema from './schema.js';

export type Database = ReturnType<typeof openDatabase>;

/** Any number that no other program on the database takes its advisory locks by. */
const MIGRATION_LOCK = 7_245_983;

/** Opens a pool of `connections` on `url`; nothing is sent before the first query. */
export function openDatabase(url: string, { connections = 10 } = {}) {
  const client = postgres(url, {
    max: connections,
    onnotice: () => {},
    connect_timeout: 5,
    connection: {
      application_name: 'branded-phone-numbers',
      // The queries are written so that one plan fits all values; planning each time anew would cost more than it finds.
      plan_cache_mode: 'force_generic_plan',
      // The walks end after a few rows; a bitmap would first read all of their ranges.
      enable_bitmapscan: false,
      jit: false,
    },
  });
  return drizzle(client, { schema });
}

/** Closes the pool; what still runs after `timeout` seconds is cut off. */
export async function closeDatabase(database: Database, timeout = 5): Promise<void> {
  await database.$client.end({ timeout });
}

/** Brings the schema up to date. Several instances may call it at once: one works, the others wait for it. */
export async function migrateDatabase(url: string): Promise<void> {
  // A connection of its own: an open one would not know the types that a migration creates, and the lock is its session's.
  const database = openDatabase(url, { connections: 1 });
  try {
    await database.$client`SELECT pg_advisory_lock(${MIGRATION_LOCK})`;
    await migrate(database, { migrationsFolder: join(packageFolder, 'drizzle') });
  } finally {
    await closeDatabase(database);
  }
}
