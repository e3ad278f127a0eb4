/** New databases on the PostgreSQL of the test run. */
import { afterAll, beforeAll, inject } from 'vitest';
import { connectTo } from './connection.js';

let created = 0;

/** Creates a migrated database without numbers, or an empty one; `drop` also closes its connections. */
export async function createDatabase({
  isEmpty = false,
  encoding = 'UTF8',
} = {}): Promise<{ url: string; drop(): Promise<void> }> {
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
  return { url: url.href, drop: () => administer(`DROP DATABASE ${name} WITH (FORCE)`) };
}

/** Creates a database for all tests of a file or a suite; `url` is set before its first test. */
export function useDatabase(): { url: string } {
  const database = { url: '' };
  let drop: () => Promise<void>;
  beforeAll(async () => {
    ({ url: database.url, drop } = await createDatabase());
  });
  afterAll(() => drop?.());
  return database;
}
