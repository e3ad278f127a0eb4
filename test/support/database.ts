/** New databases on the PostgreSQL of the test run. */
import type { Sql } from 'postgres';
import { afterAll, beforeAll, inject, onTestFinished } from 'vitest';
import { closeDatabase, type Database, openDatabase } from '../../src/database/connect.js';
import { connectTo } from './connection.js';

declare module 'vitest' {
  interface ProvidedContext {
    postgresUrl: string;
    /** The factor by which random tests try more inputs, or fewer, than in `make test` in CI. */
    tries: number;
  }
}

let created = 0;

/**
 * Creates a migrated database without numbers, or an empty one. `close` ends its sessions; it is removed with its server, because ext4
 * takes long to create files while many have just been deleted.
 */
export async function createDatabase({
  isEmpty = false,
  encoding = 'UTF8',
} = {}): Promise<{ url: string; close(): Promise<void> }> {
  const url = new URL(inject('postgresUrl'));
  const name = `test_${process.pid}_${++created}`;
  const administer = async (statement: string) => {
    const admin = connectTo(inject('postgresUrl'));
    await admin.unsafe(statement);
    await admin.end();
  };
  const template = isEmpty ? `template0 ENCODING '${encoding}' LOCALE 'C'` : 'template_migrated';
  await administer(`CREATE DATABASE ${name} TEMPLATE ${template}`);
  url.pathname = `/${name}`;
  const sessions = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '${name}'`;
  return { url: url.href, close: () => administer(sessions) };
}

/** Creates a database for the current test, and returns its URL. */
export async function useNewDatabase(options?: Parameters<typeof createDatabase>[0]): Promise<string> {
  const { url, close } = await createDatabase(options);
  onTestFinished(close);
  return url;
}

/** Opens a pool of connections for the current test. */
export function usePool(...parameters: Parameters<typeof openDatabase>): Database {
  const database = openDatabase(...parameters);
  onTestFinished(() => closeDatabase(database, 0));
  return database;
}

interface TestDatabase {
  url: string;
  /** One connection to it. */
  sql: Sql;
  /** A pool of connections, as the service and the commands have. */
  drizzle: Database;
}

/** Creates a database for all tests of a file or a suite, and connects to it before its first test. */
export function useDatabase(): TestDatabase {
  const created = {} as TestDatabase;
  let close: () => Promise<void>;
  beforeAll(async () => {
    const { url, close: endSessions } = await createDatabase();
    close = endSessions;
    Object.assign(created, { url, sql: connectTo(url), drizzle: openDatabase(url) });
  });
  afterAll(async () => {
    await Promise.all([created.sql?.end(), created.drizzle && closeDatabase(created.drizzle)]);
    await close?.();
  });
  return created;
}
