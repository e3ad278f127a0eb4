/** The schema's version: the time of its newest migration. Migrations only add, so an old service runs on a newer schema. */
import { sql } from 'drizzle-orm';
import { readMigrationFiles } from 'drizzle-orm/migrator';
import type { Database } from './connect.js';
import { causeOf, codeOf, NOT_MIGRATED } from './errors.js';
import { items } from './schema.js';

/** A reason why the database can't be used yet, and the message of PostgreSQL or the system, which only operators may see. */
export interface Obstacle {
  reason: string;
  detail?: string;
}

/**
 * Prepares a check of the schema against the migrations in `migrationsFolder`. It resolves to undefined if nothing is
 * missing. It also reads the list's table, which may be gone while the record of the migrations is still there.
 */
export function prepareSchemaCheck(database: Database, migrationsFolder: string): () => Promise<Obstacle | undefined> {
  const needed = Math.max(...readMigrationFiles({ migrationsFolder }).map(({ folderMillis }) => folderMillis));
  const read = database
    .select({ version: sql<string | null>`(SELECT max(created_at) FROM drizzle.__drizzle_migrations)` })
    .from(sql`(SELECT (SELECT 1 FROM ${items} LIMIT 1)) AS list`)
    .prepare('schema version');
  return async () => {
    try {
      const [row] = await read.execute();
      return Number(row?.version ?? 0) < needed ? { reason: OLD } : undefined;
    } catch (error) {
      const cause = causeOf(error);
      if (NOT_MIGRATED.test(codeOf(cause))) return { reason: OLD, detail: cause.message };
      throw error;
    }
  };
}

const OLD = 'the schema of the database is missing or older than this version needs: run branded-phone-numbers migrate';
