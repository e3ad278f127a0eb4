import { readFile } from 'node:fs/promises';
import type { Sql } from 'postgres';
import { expect, it } from 'vitest';
import { useDatabase } from '../support/database.js';

const database = useDatabase();

/** Returns the text of all functions and triggers, with their privileges and settings. */
const definitions = (sql: Sql) => sql`
  SELECT pg_get_functiondef(oid) AS text, proacl::text AS settings FROM pg_proc WHERE pronamespace = 'public'::regnamespace
  UNION ALL
  SELECT pg_get_triggerdef(oid), tgenabled::text FROM pg_trigger WHERE NOT tgisinternal
  ORDER BY text`;

it('drizzle/current.sql has the functions and triggers of a migrated database', async () => {
  const { sql } = database;
  const migrated = await definitions(sql);
  const names = sql`SELECT string_agg(oid::regprocedure::text, ', ') AS list FROM pg_proc WHERE pronamespace = 'public'::regnamespace`;
  await sql.unsafe(`DROP FUNCTION ${(await names)[0]?.list} CASCADE`);
  expect(await definitions(sql)).toEqual([]);
  await sql.unsafe(await readFile('drizzle/current.sql', 'utf8'));
  expect(await definitions(sql)).toEqual(migrated);
});
