/** The schema: brought up to date on a primary, and only checked on a replica, which can't be changed. */
import { getTableName, is, sql } from 'drizzle-orm';
import { PgTable } from 'drizzle-orm/pg-core';
import { migrate } from 'drizzle-orm/postgres-js/migrator';
import { withDeadline } from '../deadline.js';
import { UserError } from '../userError.js';
import { closeDatabase, type Database, openDatabase } from './connect.js';
import { foreignRoles } from './foreignRoles.js';
import * as schema from './schema.js';
import { type Obstacle, prepareSchemaCheck } from './version.js';

/** The key of an advisory lock: any number that no other program on the database uses for one. */
const MIGRATION_LOCK = 7_245_983;

/** How long a server may take to answer at all: the driver itself waits forever for one that closes every connection. */
const ANSWER_TIMEOUT_MS = 5000;

/** Whether a server takes writes. */
export type Role = 'primary' | 'replica';

/** The schema of a replica is older than this version needs. */
export class OutdatedReplica extends UserError {
  constructor({ reason, detail }: Obstacle) {
    const cause = detail ? ` (${detail})` : '';
    super(`DATABASE_URL is a replica, and only its primary can be migrated: ${reason}${cause}`);
  }
}

/**
 * Brings the schema at `url` up to date by the migrations in `migrationsFolder`. Several instances may call it at once: one
 * migrates, the others wait for it. The schema of a replica has to be up to date already.
 * @returns what was found: a primary, which is migrated now, or a replica
 * @throws {OutdatedReplica} for a replica whose primary has to be migrated first
 * @throws {UserError} for a database whose encoding is not UTF8, which
 *   can't hold every name, or one in which anyone may create what our statements would run
 */
export async function migrateDatabase(url: string, migrationsFolder: string): Promise<Role> {
  const role = await withConnection(url, (database) => withDeadline(roleOf(database), ANSWER_TIMEOUT_MS, noAnswer));
  // Migrating needs rights on the whole database, even with nothing to do; serving needs few (docs/operations.md).
  const missing = await withConnection(url, (database) =>
    withDeadline(prepareSchemaCheck(database, migrationsFolder)(), ANSWER_TIMEOUT_MS, noAnswer),
  );
  if (missing && role === 'primary') await migratePrimary(url, migrationsFolder);
  else if (missing) throw new OutdatedReplica(missing);
  return role;
}

/** Returns a line for each role with rights on the tables at `url` that the operator has not granted (foreignRoles.ts). */
export function findForeignRoles(url: string): Promise<string[]> {
  return withConnection(url, (database) => withDeadline(foreignRoles(database), ANSWER_TIMEOUT_MS, noAnswer));
}

async function migratePrimary(url: string, migrationsFolder: string): Promise<void> {
  // A connection of its own: an open one would not know the types that a migration creates.
  await withConnection(url, (migrated) =>
    withConnection(url, (locked) =>
      // Held by the transaction: held by the session, it would pass to other clients of a pooler in transaction mode.
      locked.transaction(async (transaction) => {
        await transaction.execute(sql`SELECT pg_advisory_xact_lock(${MIGRATION_LOCK})`);
        await requireBothSchemas(transaction);
        await migrate(migrated, { migrationsFolder });
      }),
    ),
  );
}

/**
 * Checks that the schemas `public` and `drizzle` belong together: if only one was restored, migrations would fail or do nothing.
 * @throws {UserError} if only one of them has what a migration made
 */
async function requireBothSchemas(transaction: Pick<Database, 'execute'>): Promise<void> {
  const names = sql.param(
    [...Object.values(schema)].map((made) => (is(made, PgTable) ? getTableName(made) : made.enumName)),
  );
  const [found] = await transaction.execute<{ made: string | null; record: string | null }>(sql`
    SELECT min(typname) AS made, to_regclass('drizzle.__drizzle_migrations') AS record
    FROM pg_type WHERE typnamespace = to_regnamespace('public') AND typname = ANY(${names}::text[])`);
  const recorded = found?.record
    ? await transaction.execute(sql`SELECT FROM drizzle.__drizzle_migrations LIMIT 1`)
    : [];
  if (found?.made && recorded.length === 0) {
    throw new UserError(
      `The schema public has ${found.made}, but the schema drizzle has no record of the migration that made it, as after a ` +
        'restore of pg_dump -n public. Bring the record in, as "Backups" in docs/operations.md says, or restore a dump of ' +
        'both schemas (pg_dump -n public -n drizzle). If another program made it, use another database.',
    );
  }
  if (!found?.made && recorded.length > 0) {
    throw new UserError(
      'The schema drizzle has a record of migrations, but the schema public has nothing that they made. Restore a dump of ' +
        'both schemas (pg_dump -n public -n drizzle), or begin with no data: DROP SCHEMA drizzle CASCADE',
    );
  }
}

async function roleOf(database: Database): Promise<Role> {
  const [row] = await database.$client<[Record<string, unknown>]>`
    SELECT pg_is_in_recovery() AS "isReplica", current_setting('server_encoding') AS encoding, current_database() AS name,
      has_schema_privilege('public', to_regnamespace('public'), 'CREATE') AS "isOpen"`;
  if (row.encoding !== 'UTF8') {
    throw new UserError(
      `The encoding of the database ${row.name} is ${row.encoding}, and it has to be UTF8: make one with ` +
        "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0, and name it in DATABASE_URL.",
    );
  }
  if (row.isOpen) {
    throw new UserError(
      `Anyone may create objects in the schema public of the database ${row.name}, as was usual before PostgreSQL 15, and so ` +
        'have others run their code. Close it: REVOKE CREATE ON SCHEMA public FROM PUBLIC',
    );
  }
  return row.isReplica ? 'replica' : 'primary';
}

function noAnswer(): Error {
  return Object.assign(new Error('the database does not answer'), { code: 'CONNECT_TIMEOUT' });
}

async function withConnection<T>(url: string, use: (database: Database) => Promise<T>): Promise<T> {
  const database = openDatabase(url, { connections: 1 });
  try {
    return await use(database);
  } finally {
    await closeDatabase(database, 0);
  }
}
