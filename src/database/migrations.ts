/** The schema: brought up to date on a primary, and only checked on a replica, which can't be changed. */
import { sql } from 'drizzle-orm';
import { migrate } from 'drizzle-orm/postgres-js/migrator';
import { withDeadline } from '../deadline.js';
import { hostsOf } from '../postgresUrl/postgresUrl.js';
import { UserError } from '../userError.js';
import { closeDatabase, type Database, openDatabase } from './connect.js';
import { prepareSchemaCheck } from './version.js';

/** The key of an advisory lock: any number that no other program on the database uses for one. */
const MIGRATION_LOCK = 7_245_983;

/** How long a host may take to answer at all: the driver itself waits forever for one that closes every connection. */
const ANSWER_TIMEOUT_MS = 5000;

/** Whether a server takes writes. */
export type Role = 'primary' | 'replica';

/**
 * Brings the schema up to date by the migrations in `migrationsFolder`, on the first host of `url` that takes writes.
 * Several instances may call it at once: one migrates, the others wait for it. Where only replicas answer, their schema
 * has to be up to date already.
 * @returns what was found: a primary, which is migrated now, or only a replica
 * @throws {UserError} where there are only replicas, whose primary has to be migrated first, or where the encoding of a
 *   host's database is not UTF8, which can't hold every name
 */
export async function migrateDatabase(url: string, migrationsFolder: string): Promise<Role> {
  let replica: string | undefined;
  let failure: unknown;
  for (const host of hostsOf(url)) {
    const role = await withConnection(host, (database) =>
      withDeadline(roleOf(database), ANSWER_TIMEOUT_MS, noAnswer),
    ).catch((error) => {
      if (error instanceof UserError) throw error;
      failure ??= error;
    });
    if (role === 'primary') {
      // Migrating needs rights on the whole database, even with nothing to do; serving needs few (docs/operations.md).
      if (await findMissing(host, migrationsFolder)) await migratePrimary(host, migrationsFolder);
      return role;
    }
    if (role === 'replica') replica ??= host;
  }
  if (!replica) throw failure;
  const missing = await findMissing(replica, migrationsFolder);
  if (missing) throw new UserError(`DATABASE_URL is a replica, and only its primary can be migrated: ${missing}`);
  return 'replica';
}

function findMissing(url: string, migrationsFolder: string): Promise<string | undefined> {
  return withConnection(url, (database) => prepareSchemaCheck(database, migrationsFolder)());
}

async function migratePrimary(url: string, migrationsFolder: string): Promise<void> {
  // A connection of its own: an open one would not know the types that a migration creates.
  await withConnection(url, (migrated) =>
    withConnection(url, (locked) =>
      // Held by the transaction: held by the session, it would pass to other clients of a pooler in transaction mode.
      locked.transaction(async (transaction) => {
        await transaction.execute(sql`SELECT pg_advisory_xact_lock(${MIGRATION_LOCK})`);
        await migrate(migrated, { migrationsFolder });
      }),
    ),
  );
}

async function roleOf(database: Database): Promise<Role> {
  const [row] = await database.$client`
    SELECT pg_is_in_recovery() AS "isReplica", current_setting('server_encoding') AS encoding, current_database() AS name`;
  if (row?.encoding !== 'UTF8') {
    throw new UserError(
      `The encoding of the database ${row?.name} is ${row?.encoding}, and it has to be UTF8: make one with ` +
        "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0, and name it in DATABASE_URL.",
    );
  }
  return row?.isReplica ? 'replica' : 'primary';
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
