/** Migrates the schema of a primary, and checks that of a replica, which is read-only. */
import { getTableName, is, sql } from 'drizzle-orm';
import { PgTable } from 'drizzle-orm/pg-core';
import { migrate } from 'drizzle-orm/postgres-js/migrator';
import { withDeadline } from '../deadline.js';
import { UserError } from '../userError.js';
import { closeDatabase, type Database, openDatabase } from './connect.js';
import { describeForeignRoles } from './foreignRoles.js';
import * as schema from './schema.js';
import { type Obstacle, prepareSchemaCheck } from './version.js';

/** The key of the advisory lock that a migration holds: any number that no other program on the database uses. */
const MIGRATION_LOCK = 7_245_983;

/** The time limit of a query. The driver waits forever for a server that closes every connection. */
const RESPONSE_TIMEOUT_MS = 5000;

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
 * @returns the server's role; a primary has been migrated
 * @throws {OutdatedReplica} if a replica's primary must be migrated first
 * @throws {UserError} if the encoding is not UTF8, so that some names can't be stored, or if every role may create
 *   objects in the schema public, which our statements would then use
 */
export async function migrateDatabase(url: string, migrationsFolder: string): Promise<Role> {
  const role = await query(url, readRole);
  // Migrating needs privileges on the whole database, even with nothing to do; serving needs few (docs/operations.md).
  const obstacle = await query(url, (database) => prepareSchemaCheck(database, migrationsFolder)());
  if (obstacle && role === 'replica') throw new OutdatedReplica(obstacle);
  if (obstacle) await migratePrimary(url, migrationsFolder);
  return role;
}

/** Returns a line for each role that has privileges on the tables at `url` that the operator has not granted. */
export function findForeignRoles(url: string): Promise<string[]> {
  return query(url, describeForeignRoles);
}

async function migratePrimary(url: string, migrationsFolder: string): Promise<void> {
  // Two connections: the migrations run in transactions on one while a transaction on the other holds the lock.
  await withConnection(url, (migrating) =>
    withConnection(url, (locking) =>
      // A session's lock would pass to other clients of a pooler in transaction mode.
      locking.transaction(async (transaction) => {
        await transaction.execute(sql`SELECT pg_advisory_xact_lock(${MIGRATION_LOCK})`);
        await requireBothSchemas(transaction);
        await migrate(migrating, { migrationsFolder });
      }),
    ),
  );
}

/**
 * Checks that the tables in the schema public and the record of migrations in the schema drizzle are both present or
 * both absent: if only one schema was restored, migrations would fail or do nothing.
 * @throws {UserError} if only one of them is present
 */
async function requireBothSchemas(transaction: Pick<Database, 'execute'>): Promise<void> {
  const names = sql.param(
    Object.values(schema).map((object) => (is(object, PgTable) ? getTableName(object) : object.enumName)),
  );
  const [found] = await transaction.execute<{ relation: string | null; record: string | null }>(sql`
    SELECT min(typname) AS relation, to_regclass('drizzle.__drizzle_migrations') AS record
    FROM pg_type WHERE typnamespace = to_regnamespace('public') AND typname = ANY(${names}::text[])`);
  const recorded = found?.record
    ? await transaction.execute(sql`SELECT FROM drizzle.__drizzle_migrations LIMIT 1`)
    : [];
  if (found?.relation && recorded.length === 0) {
    throw new UserError(
      `The schema public has ${found.relation}, but the schema drizzle has no record of the migration that created it, ` +
        'as after a restore of pg_dump -n public. Add the record as described under "Backups" in docs/operations.md, or restore ' +
        'a dump of both schemas (pg_dump -n public -n drizzle). If another program created it, use another database.',
    );
  }
  if (!found?.relation && recorded.length > 0) {
    throw new UserError(
      'The schema drizzle has a record of migrations, but the schema public has none of their tables. Restore a dump of ' +
        'both schemas (pg_dump -n public -n drizzle), or start without data: DROP SCHEMA drizzle CASCADE',
    );
  }
}

async function readRole(database: Database): Promise<Role> {
  const [row] = await database.$client<[Record<string, unknown>]>`
    SELECT pg_is_in_recovery() AS "isReplica", current_setting('server_encoding') AS encoding, current_database() AS name,
      has_schema_privilege('public', to_regnamespace('public'), 'CREATE') AS "isOpen"`;
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
