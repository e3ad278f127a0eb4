/** Checks the schema, and migrates that of a primary; a replica is read-only. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { commandName } from '../packageFolder.js';
import { UserError } from '../userError.js';
import { reportOnce, type Wait, watchingWaits } from './blockers.js';
import { Connection, type Database, queryOnce } from './connection.js';
import { settingsOfTransactions } from './driver.js';
import { getTableName, readMigrationFiles, sql } from './drizzle.js';
import { CANCELED, causeOf, codeOf, failureOf, isFailover, LOCK_FAILED, reasonOf } from './errors.js';
import { retryInOutage } from './outage.js';
import * as schema from './schema.js';

/** The key of the advisory lock that a migration holds: any number that no other program on the database uses. */
const MIGRATION_LOCK = 7_245_983;

/** The longest wait for a lock, in milliseconds: other programs' statements queue behind it. */
const LOCK_TIMEOUT_MS = 500;
/** Between the attempts of a migration, the statements run that other programs have queued behind its wait for a lock. */
const ATTEMPTS = { forMs: 60_000, everyMs: 1000 };
const LIMITS = { statementTimeout: ATTEMPTS.forMs };

/** The code of our error if only one of the schemas is there. */
const INCOMPLETE = 'BPN01';
/** The codes of PostgreSQL's errors if the schema or the table of the records is missing. */
const NO_RECORDS = /^(3F000|42P01)$/;

/** Whether a server accepts writes (primary) or is read-only (replica). */
export type Role = 'primary' | 'replica';

/** Why the database can't be used yet; `detail` is PostgreSQL's or the system's message, which clients must not see. */
export interface Obstacle {
  reason: string;
  detail?: string;
}

/**
 * Prepares a check that all migrations in `migrationsFolder` are recorded; the schema may be newer, since migrations only add.
 * The check resolves to an obstacle if the schema is missing or too old, or if the role can't see all rows, and to undefined
 * otherwise. It also reads the table `items`, which may be missing even if the migrations are recorded.
 */
export function prepareSchemaCheck(migrationsFolder: string): (database: Database) => Promise<Obstacle | undefined> {
  const hashes = readMigrationFiles({ migrationsFolder }).map(({ hash }) => hash);
  // Not a parameter: the driver would ask for its type first, and `items` would be locked until it gets the response.
  const isMigrated = sql<boolean>`${sql.raw(`'{${hashes}}'`)} <@ ARRAY(SELECT hash FROM drizzle.__drizzle_migrations)`;
  return async (database) => {
    try {
      const [row] = await database
        .select({ isMigrated })
        .from(sql`(SELECT (SELECT 1 FROM ${schema.items} LIMIT 1)) AS list`)
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

const OUTDATED = `the schema of the database is missing or older than this version needs: run ${commandName} migrate`;

/** The reason that no migration helps against. */
const HIDDEN = 'row-level security hides rows of the database from this service';

export class OutdatedReplica extends UserError {
  constructor({ reason, detail }: Obstacle) {
    const cause = detail ? ` (${detail})` : '';
    super(`DATABASE_URL is a replica, and only its primary can be migrated: ${reason}${cause}`);
  }
}

interface Options {
  /** Whether to retry if the connection breaks while it migrates or waits for another instance. */
  retriesOutage?: boolean;
  /** Called each time that a wait for other sessions is found; by default reports it. */
  onBlocked?(wait: Wait): void;
}

/**
 * Applies the missing migrations of `migrationsFolder` to the database at `url`, each in its own transaction. If several
 * instances do this at once, one migrates and the rest wait for it. The schema of a replica must be up to date already.
 * @returns the server's role, and the names of the migrations that were applied
 * @throws {OutdatedReplica} if a replica's primary must be migrated first
 * @throws {UserError} if the encoding is not UTF8, so that some names can't be stored, if every role may create
 *   objects in the schema public, which our statements would then use, or if row-level security hides rows
 * @throws if other programs hold a lock for a minute; the migrations before it stay
 */
export async function migrateDatabase(
  url: string,
  migrationsFolder: string,
  { retriesOutage = false, onBlocked = (wait) => reportOnce(url, wait) }: Options = {},
): Promise<{ role: Role; applied: string[] }> {
  const checkSchema = prepareSchemaCheck(migrationsFolder);
  let blockers: string[] = [];
  const onFound = (wait: Wait) => {
    blockers = wait.blockers;
    onBlocked(wait);
  };
  return watchingWaits(url, { lock: MIGRATION_LOCK, onFound }, async () => {
    const { role, obstacle } = await queryOnce(url, async (database) => ({
      role: await readRole(database),
      // Migrating needs privileges on the whole database, even with nothing to do; serving needs few (docs/operations.md).
      obstacle: await checkSchema(database),
    }));
    if (!obstacle) return { role, applied: [] };
    if (obstacle.reason === HIDDEN) throw new UserError(`${HIDDEN}: ${obstacle.detail}`);
    if (role === 'replica') throw new OutdatedReplica(obstacle);
    try {
      return { role, applied: await applyMissing(url, readMigrations(migrationsFolder), retriesOutage) };
    } catch (error) {
      const code = codeOf(causeOf(error));
      if (code === INCOMPLETE) throw new UserError(causeOf(error).message);
      const isBlocked = (code === CANCELED || LOCK_FAILED.test(code)) && blockers.length > 0;
      if (!isBlocked) throw error;
      const advice = `run this again once these have ended: ${blockers.join('; ')}`;
      throw Object.assign(new Error(`a migration waited for a minute, and was rolled back: ${advice}`), { code });
    }
  });
}

type Migration = ReturnType<typeof readMigrations>[number];

function readMigrations(migrationsFolder: string) {
  const { entries } = JSON.parse(readFileSync(join(migrationsFolder, 'meta', '_journal.json'), 'utf8'));
  return readMigrationFiles({ migrationsFolder }).map((file, i) => ({ ...file, name: entries[i].tag as string }));
}

/**
 * Applies the migrations that are not recorded, on one connection as long as it can be used. A migration that did not get its
 * locks is attempted again and again; in between, there is no transaction.
 * @returns their names, without those whose commit was not confirmed before the connection broke
 */
async function applyMissing(url: string, migrations: Migration[], retriesOutage: boolean): Promise<string[]> {
  const applied: string[] = [];
  const connect = () => new Connection(url, { ...LIMITS, mayBeSilent: true });
  let connection = connect();
  const applyNext = () => {
    if (connection.failure) connection = connect();
    return connection.run((database) => applyFirstMissing(database, migrations));
  };
  const mayPass = (error: unknown) =>
    LOCK_FAILED.test(codeOf(error)) || (retriesOutage && isFailover(failureOf(error)));
  try {
    for (;;) {
      const name = await retryInOutage(applyNext, { ...ATTEMPTS, mayPass });
      if (name === undefined) return applied;
      applied.push(name);
    }
  } finally {
    await connection.close(0);
  }
}

/**
 * Applies the first migration that is not recorded, in one message, so that PostgreSQL holds its locks only while it works,
 * whatever happens to this process or the network. Returns its name, or undefined if all are recorded.
 */
async function applyFirstMissing(database: Database, migrations: Migration[]): Promise<string | undefined> {
  const hashes = await recordedHashes(database);
  const missing = migrations.find(({ hash }) => !hashes.includes(hash));
  const settings = await settingsOfTransactions(database.$client, LIMITS);
  const begin = ['SET TRANSACTION ISOLATION LEVEL READ COMMITTED', settings, lockAndCheck(migrations, missing)];
  await database.$client.unsafe([...begin, ...(missing ? [...missing.sql, record(missing)] : [])].join(';\n'));
  return missing?.name;
}

/** Returns the hashes of the recorded migrations; none if there is no table of them. */
async function recordedHashes({ $client }: Database): Promise<string[]> {
  const records = await $client`SELECT hash FROM drizzle.__drizzle_migrations`.catch((error) => {
    if (NO_RECORDS.test(codeOf(error))) return [];
    throw error;
  });
  return records.map(({ hash }) => hash);
}

/**
 * Returns statements that keep other migrators away until the transaction ends. They fail if one is at work, if `missing` is
 * recorded, or if only one of the schemas public and drizzle was restored: then migrations would fail or do nothing.
 */
function lockAndCheck(all: Migration[], missing: Migration | undefined): string {
  const isRecorded = missing
    ? `EXISTS (SELECT FROM drizzle.__drizzle_migrations WHERE hash = '${missing.hash}')`
    : 'false';
  const names = Object.values(schema).map((object) => ('enumName' in object ? object.enumName : getTableName(object)));
  return `
    SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS};
    DO $check$
    DECLARE
      relation text;
      recorded int[];
    BEGIN
      IF NOT pg_try_advisory_xact_lock(${MIGRATION_LOCK}) THEN
        RAISE lock_not_available USING MESSAGE = 'another process migrates the database';
      END IF;
      CREATE SCHEMA IF NOT EXISTS drizzle;
      CREATE TABLE IF NOT EXISTS drizzle.__drizzle_migrations (id serial PRIMARY KEY, hash text NOT NULL, created_at bigint);
      relation := (
        SELECT min(typname) FROM pg_type
        WHERE typnamespace = to_regnamespace('public') AND typname = ANY ('{${names}}')
      );
      recorded := ARRAY(
        SELECT id FROM drizzle.__drizzle_migrations WHERE hash = ANY ('{${all.map(({ hash }) => hash)}}')
      );
      IF relation IS NOT NULL AND recorded = '{}' THEN
        RAISE 'The schema public has %, but the schema drizzle has no record of the migration that created it, as after a '
          'restore of pg_dump -n public. Add the record as described under "Backups" in docs/operations.md, or restore a dump '
          'of both schemas (pg_dump -n public -n drizzle). If another program created it, use another database.',
          relation USING ERRCODE = '${INCOMPLETE}';
      ELSIF relation IS NULL AND recorded <> '{}' THEN
        RAISE 'The schema drizzle has a record of migrations, but the schema public has none of their tables. Restore a dump '
          'of both schemas (pg_dump -n public -n drizzle), or start without data: DELETE FROM drizzle.__drizzle_migrations '
          'WHERE id IN (%)', array_to_string(recorded, ', ') USING ERRCODE = '${INCOMPLETE}';
      ELSIF ${isRecorded} THEN
        RAISE lock_not_available USING MESSAGE = 'another process has applied the migration';
      END IF;
    END $check$`;
}

/** Returns statements that record a migration. Its number is free: logical replication does not copy the sequence. */
const record = ({ hash, folderMillis }: Migration) => `
  SELECT setval(sequence, max(id)) FROM drizzle.__drizzle_migrations,
    CAST(pg_get_serial_sequence('drizzle.__drizzle_migrations', 'id') AS regclass) AS sequence
  GROUP BY sequence HAVING max(id) > coalesce(pg_sequence_last_value(sequence), 0);
  INSERT INTO drizzle.__drizzle_migrations (hash, created_at) VALUES ('${hash}', ${folderMillis})`;

async function readRole(database: Database): Promise<Role> {
  const [row] = await database.$client<[Record<string, unknown>]>`
    SELECT pg_is_in_recovery() AS "isReplica", current_setting('server_encoding') AS encoding, current_database() AS name,
      current_setting('server_version') AS version, current_setting('server_version_num')::int >= 150000 AS "isSupported",
      has_schema_privilege('public', to_regnamespace('public'), 'CREATE') AS "isOpen"`;
  if (!row.isSupported)
    throw new UserError(`The server is PostgreSQL ${row.version}. PostgreSQL 15 or later is needed`);
  if (row.encoding !== 'UTF8') {
    throw new UserError(
      `The encoding of the database ${row.name} is ${row.encoding}, but it must be UTF8: create a database with ` +
        "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0, and set DATABASE_URL to it.",
    );
  }
  if (row.isOpen) {
    throw new UserError(
      `Anyone may create objects in the schema public of the database ${row.name} (the default before PostgreSQL 15), and other ` +
        'roles may run code in these objects. Close it: REVOKE CREATE ON SCHEMA public FROM PUBLIC',
    );
  }
  return row.isReplica ? 'replica' : 'primary';
}
