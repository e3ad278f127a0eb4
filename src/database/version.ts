/** Checks the schema's version: the time of its newest migration. It may be newer, since migrations only add. */
import { sql } from 'drizzle-orm';
import { readMigrationFiles } from 'drizzle-orm/migrator';
import type { Database } from './connect.js';
import { causeOf, codeOf, NOT_MIGRATED } from './errors.js';
import { items } from './schema.js';

/** Why the database can't be used yet; `detail` is PostgreSQL's or the system's message, which clients must not see. */
export interface Obstacle {
  reason: string;
  detail?: string;
}

/**
 * Prepares a check of the schema against the migrations in `migrationsFolder`. The check resolves to an obstacle if the
 * schema is missing or too old, and to undefined otherwise. It also reads the table `items`, which may be missing even
 * if the migrations are recorded.
 */
export function prepareSchemaCheck(database: Database, migrationsFolder: string): () => Promise<Obstacle | undefined> {
  const neededVersion = Math.max(...readMigrationFiles({ migrationsFolder }).map(({ folderMillis }) => folderMillis));
  const read = database
    .select({ version: sql<string | null>`(SELECT max(created_at) FROM drizzle.__drizzle_migrations)` })
    .from(sql`(SELECT (SELECT 1 FROM ${items} LIMIT 1)) AS list`)
    .prepare('schema version');
  return async () => {
    try {
      const [row] = await read.execute();
      return Number(row?.version ?? 0) < neededVersion ? { reason: OUTDATED } : undefined;
    } catch (error) {
      const cause = causeOf(error);
      if (NOT_MIGRATED.test(codeOf(cause))) return { reason: OUTDATED, detail: cause.message };
      throw error;
    }
  };
}

const OUTDATED =
  'the schema of the database is missing or older than this version needs: run branded-phone-numbers migrate';
