/** A database without numbers on the test run's PostgreSQL. */
import { afterAll, beforeAll, inject } from 'vitest';
import { connectTo } from './connection.js';

let created = 0;

/** Creates a database; `url` leads to it and `drop` removes it, even while others are connected. */
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

/** A database for all tests of a file or a suite: `url` leads to it once they have begun, and it is removed after all else. */
export function useDatabase(): { url: string } {
  const database = { url: '' };
  let drop: () => Promise<void>;
  beforeAll(async () => {
    ({ url: database.url, drop } = await createDatabase());
  });
  afterAll(() => drop());
  return database;
}
