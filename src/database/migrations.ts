/** Migrates the schema of a primary, and checks that of a replica, which is read-only. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { getTableName, is } from 'drizzle-orm';
import { readMigrationFiles } from 'drizzle-orm/migrator';
import { PgTable } from 'drizzle-orm/pg-core';
import { withDeadline } from '../deadline.js';
import { UserError } from '../userError.js';
import { closeDatabase, type Database, openDatabase } from './connect.js';
import { failureOf, isFailover, VERSION_NEEDED } from './errors.js';
import { describeForeignRoles } from './foreignRoles.js';
import * as schema from './schema.js';
import { inTransaction, type Transaction } from './transaction.js';
import { HIDDEN, type Obstacle, prepareSchemaCheck } from './version.js';

/** The key of the advisory lock that a migration holds: any number that no other program on the database uses. */
const MIGRATION_LOCK = 7_245_983;

/** The time limit of a query. The driver waits forever for a server that closes every connection. */
const RESPONSE_TIMEOUT_MS = 5000;

/** Milliseconds between attempts to migrate while PostgreSQL restarts or fails over. */
const RETRY_INTERVAL_MS = 500;

/** Whether a server accepts writes (primary) or is read-only (replica). */
export type Role = 'primary' | 'replica';

/** The schema of a replica is missing or older than this version needs. */
export class OutdatedReplica extends UserError {
  constructor({ reason, detail }: Obstacle) {
    const cause = detail ? ` (${detail})` : '';
    super(`DATABASE_URL is a replica, and only its primary can be migrated: ${reason}${cause}`);
  }
}

/**
 * Applies the missing migrations of `migrationsFolder` to the database at `url`. If several instances do this at once,
 * one migrates and the rest wait for it. The schema of a replica must be up to date already.
 * @param retryMs how long to retry if the connection breaks while it migrates or waits for another instance
 * @returns the server's role, and the names of the migrations that were applied
 * @throws {OutdatedReplica} if a replica's primary must be migrated first
 * @throws {UserError} if the server is older than PostgreSQL 15, if the encoding is not UTF8, so that some names can't be
 *   stored, if every role may create objects in the schema public, which our statements would then use, or if row-level
 *   security hides rows
 */
export async function migrateDatabase(
  url: string,
  migrationsFolder: string,
  retryMs = 0,
): Promise<{ role: Role; applied: string[] }> {
  const role = await query(url, readRole);
  // Migrating needs privileges on the whole database, even with nothing to do; serving needs few (docs/operations.md).
  const obstacle = await query(url, (database) => prepareSchemaCheck(database, migrationsFolder)());
  if (!obstacle) return { role, applied: [] };
  if (obstacle.reason === HIDDEN) throw new UserError(`${HIDDEN}: ${obstacle.detail}`);
  if (role === 'replica') throw new OutdatedReplica(obstacle);
  for (let brokenSince: number | undefined; ; await sleep(RETRY_INTERVAL_MS)) {
    try {
      const apply = (sql: Transaction) => applyMigrations(sql, migrationsFolder);
      return { role, applied: await inTransaction({ url }, 'READ COMMITTED', apply) };
    } catch (error) {
      brokenSince ??= performance.now();
      if (!isFailover(failureOf(error)) || performance.now() - brokenSince >= retryMs) throw error;
    }
  }
}

/** Returns a line for each role that has privileges on the tables at `url` that the operator has not granted. */
export function findForeignRoles(url: string): Promise<string[]> {
  return query(url, describeForeignRoles);
}

/**
 * Applies the migrations whose hashes are not recorded, and returns their names. Drizzle's own `migrate` compares only
 * the time of the newest record, which may be another program's: both may record in this table, which is Drizzle's.
 */
async function applyMigrations(sql: Transaction, migrationsFolder: string): Promise<string[]> {
  // A session's lock would pass to other clients of a pooler in transaction mode.
  await sql`SELECT pg_advisory_xact_lock(${MIGRATION_LOCK})`;
  // The other program may add its record at this moment.
  await sql.unsafe(`
    CREATE SCHEMA IF NOT EXISTS drizzle;
    CREATE TABLE IF NOT EXISTS drizzle.__drizzle_migrations (id serial PRIMARY KEY, hash text NOT NULL, created_at bigint);
    LOCK TABLE drizzle.__drizzle_migrations IN SHARE ROW EXCLUSIVE MODE`);
  const records = await sql<{ id: number; hash: string }[]>`SELECT id, hash FROM drizzle.__drizzle_migrations`;
  const journal = JSON.parse(readFileSync(join(migrationsFolder, 'meta', '_journal.json'), 'utf8'));
  const migrations = readMigrationFiles({ migrationsFolder }).map((migration, i) => ({
    ...migration,
    name: journal.entries[i].tag as string,
    record: records.find(({ hash }) => hash === migration.hash),
  }));
  await requireBothSchemas(
    sql,
    migrations.flatMap(({ record }) => record?.id ?? []),
  );
  const missing = migrations.filter(({ record }) => !record);
  for (const { sql: statements, hash, folderMillis } of missing) {
    for (const statement of statements) await sql.unsafe(statement);
    await sql`
      INSERT INTO drizzle.__drizzle_migrations (id, hash, created_at)
      SELECT coalesce(max(id), 0) + 1, ${hash}, ${folderMillis} FROM drizzle.__drizzle_migrations`;
  }
  // Drizzle takes ids from the sequence. Logical replication does not copy it.
  await sql`
    SELECT setval(pg_get_serial_sequence('drizzle.__drizzle_migrations', 'id'), max(id)) FROM drizzle.__drizzle_migrations`;
  return missing.map(({ name }) => name);
}

/**
 * Checks that the tables in the schema public and the record of migrations in the schema drizzle are both present or
 * both absent: if only one schema was restored, migrations would fail or do nothing.
 * @param recorded the ids of the records of our migrations
 * @throws {UserError} if only one of them is present
 */
async function requireBothSchemas(sql: Transaction, recorded: number[]): Promise<void> {
  const names = Object.values(schema).map((object) => (is(object, PgTable) ? getTableName(object) : object.enumName));
  const [found] = await sql<[{ relation: string | null }]>`
    SELECT min(typname) AS relation
    FROM pg_type WHERE typnamespace = to_regnamespace('public') AND typname = ANY(${names}::text[])`;
  if (found.relation && recorded.length === 0) {
    throw new UserError(
      `The schema public has ${found.relation}, but the schema drizzle has no record of the migration that created it, ` +
        'as after a restore of pg_dump -n public. Add the record as described under "Backups" in docs/operations.md, or restore ' +
        'a dump of both schemas (pg_dump -n public -n drizzle). If another program created it, use another database.',
    );
  }
  if (!found.relation && recorded.length > 0) {
    throw new UserError(
      'The schema drizzle has a record of migrations, but the schema public has none of their tables. Restore a dump of ' +
        'both schemas (pg_dump -n public -n drizzle), or start without data: DELETE FROM drizzle.__drizzle_migrations ' +
        `WHERE id IN (${recorded.join(', ')})`,
    );
  }
}

async function readRole(database: Database): Promise<Role> {
  const [row] = await database.$client<[Record<string, unknown>]>`
    SELECT pg_is_in_recovery() AS "isReplica", current_setting('server_encoding') AS encoding, current_database() AS name,
      current_setting('server_version') AS version, current_setting('server_version_num')::int >= 150000 AS "isSupported",
      has_schema_privilege('public', to_regnamespace('public'), 'CREATE') AS "isOpen"`;
  if (!row.isSupported) throw new UserError(`The server is PostgreSQL ${row.version}. ${VERSION_NEEDED}`);
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

/** Runs a query on a new connection. */
function query<T>(url: string, run: (database: Database) => Promise<T>): Promise<T> {
  return withConnection(url, (database) => withDeadline(run(database), RESPONSE_TIMEOUT_MS, noResponse));
}

function noResponse(): Error {
  return Object.assign(new Error('the database does not respond'), { code: 'CONNECT_TIMEOUT' });
}

async function withConnection<T>(url: string, use: (database: Database) => Promise<T>): Promise<T> {
  const database = openDatabase(url, { connections: 1 });
  try {
    return await use(database);
  } finally {
    await closeDatabase(database, 0);
  }
}
