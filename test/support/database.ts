/** New databases on the PostgreSQL of the test run. */
import type { Sql } from 'postgres';
import { afterAll, beforeAll, inject, onTestFinished } from 'vitest';
import {
  Connection,
  type Database,
  type Isolation,
  type Transaction,
  withConnection,
} from '../../src/database/connection.js';
import { connectTo } from './connection.js';

declare module 'vitest' {
  interface ProvidedContext {
    postgresUrl: string;
    /** The factor by which random tests try more inputs, or fewer, than in `make test` before a release. */
    tries: number;
  }
}

/** Creates the databases of this process. */
let admin: Sql | undefined;
let created = 0;

/**
 * Creates a migrated database without numbers, or an empty one, and returns its URL. It is removed with its server, since
 * deleted files slow down the next ones (postgres.ts).
 */
export async function createDatabase({ isEmpty = false, encoding = 'UTF8' } = {}): Promise<string> {
  const url = new URL(inject('postgresUrl'));
  const name = `test_${process.pid}_${++created}`;
  const template = isEmpty ? `template0 ENCODING '${encoding}' LOCALE 'C'` : 'template_migrated';
  admin ??= connectTo(url.href);
  await admin.unsafe(`CREATE DATABASE ${name} TEMPLATE ${template}`);
  url.pathname = `/${name}`;
  return url.href;
}

/** A connection whose statements tests may send as they like: nothing counts or watches them outside of `connection.run`. */
export type TestConnection = Database & { url: string; connection: Connection };

export function openDatabase(...[url, options]: ConstructorParameters<typeof Connection>): TestConnection {
  const connection = new Connection(url, options);
  let database: Database | undefined;
  void connection.run(async (given) => {
    database = given;
  });
  return Object.assign(database as unknown as Database, { url, connection });
}

export const closeDatabase = ({ connection }: Pick<TestConnection, 'connection'>, timeout = 5): Promise<void> =>
  connection.close(timeout);

export const inTransaction = <T>(url: string, isolation: Isolation, work: (sql: Transaction) => Promise<T>) =>
  withConnection(url, (connection) => connection.transaction(isolation, work));

/** Opens a connection for the current test. */
export function usePool(...parameters: Parameters<typeof openDatabase>): TestConnection {
  const database = openDatabase(...parameters);
  onTestFinished(() => closeDatabase(database, 0));
  return database;
}

interface TestDatabase {
  url: string;
  /** One connection to it. */
  sql: Sql;
  /** A connection as the service and the commands have. */
  drizzle: TestConnection;
}

/** Creates a database for all tests of a file or a suite, and connects to it before its first test. */
export function useDatabase(): TestDatabase {
  const created = {} as TestDatabase;
  beforeAll(async () => {
    const url = await createDatabase();
    Object.assign(created, { url, sql: connectTo(url), drizzle: openDatabase(url) });
  });
  afterAll(async () => {
    await Promise.all([created.sql?.end(), created.drizzle && closeDatabase(created.drizzle)]);
  });
  return created;
}
