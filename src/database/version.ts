/** Checks that all migrations of this version are recorded. The schema may be newer, since migrations only add. */
import { sql } from 'drizzle-orm';
import { readMigrationFiles } from 'drizzle-orm/migrator';
import type { Database } from './connection.js';
import { causeOf, failureOf, reasonOf } from './errors.js';
import { items } from './schema.js';

/** Why the database can't be used yet; `detail` is PostgreSQL's or the system's message, which clients must not see. */
export interface Obstacle {
  reason: string;
  detail?: string;
}

/**
 * Prepares a check of the schema against the migrations in `migrationsFolder`. The check resolves to an obstacle if the
 * schema is missing or too old, or if the role can't see all rows, and to undefined otherwise. It also reads the table
 * `items`, which may be missing even if the migrations are recorded.
 */
export function prepareSchemaCheck(migrationsFolder: string): (database: Database) => Promise<Obstacle | undefined> {
  const hashes = readMigrationFiles({ migrationsFolder }).map(({ hash }) => hash);
  const isMigrated = sql<boolean>`${sql.param(hashes)}::text[] <@ ARRAY(SELECT hash FROM drizzle.__drizzle_migrations)`;
  return async (database) => {
    try {
      const [row] = await database
        .select({ isMigrated })
        .from(sql`(SELECT (SELECT 1 FROM ${items} LIMIT 1)) AS list`)
        .prepare('schema version')
        .execute();
      return row?.isMigrated ? undefined : { reason: OUTDATED };
    } catch (error) {
      const failure = failureOf(error);
      if (failure === 'unusable') return { reason: OUTDATED, detail: causeOf(error).message };
      if (failure === 'hidden') return { reason: HIDDEN, detail: reasonOf(error) };
      throw error;
    }
  };
}

const OUTDATED =
  'the schema of the database is missing or older than this version needs: run branded-phone-numbers migrate';

/** The reason that no migration helps against. */
export const HIDDEN = 'row-level security hides rows of the database from this service';
