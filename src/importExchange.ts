/**
 * Makes tables anew, aside, and puts them in the place of the old ones: for an import of many numbers, since a table
 * without indexes is filled, and an index over all rows is built, in a fraction of the time that both take row by row, and
 * since pages then don't pass over rows that nobody may see yet. Reading goes on until the exchange at the end.
 */
import type { TransactionSql } from 'postgres';
import { lockOutReaders } from './importLocks.js';

/** The tables that are exchanged, in the order in which their keys refer to each other. */
const TABLES = ['branded_phone_numbers', 'carrier_statuses', 'listings'] as const;

/** Where the new tables stand until the exchange, under the names of the old ones, seen by this transaction alone. */
const ASIDE = 'import_aside';

/** The new table that is to take the place of `table`. */
export const aside = (sql: TransactionSql, table: (typeof TABLES)[number]) => sql(`${ASIDE}.${table}`);

/**
 * Whether this role may exchange the tables, and whether all would be as before: nobody else's view, key, policy or
 * replication hangs on one of them, and nothing was set on one that isn't made anew below.
 */
export async function mayExchange(sql: TransactionSql): Promise<boolean> {
  const [row] = await sql<{ may: boolean }[]>`
    WITH exchanged AS (
      SELECT pg_class.* FROM pg_class WHERE oid = ANY (${TABLES}::text[]::regclass[])
    ), dependents AS (
      SELECT classid, objid FROM pg_depend
      WHERE refclassid = 'pg_class'::regclass AND refobjid IN (SELECT oid FROM exchanged)
    ), own_dependents AS (
      SELECT 'pg_class'::regclass, oid FROM pg_class WHERE relkind IN ('i', 't')
      UNION ALL
      SELECT 'pg_constraint'::regclass, oid FROM pg_constraint WHERE conrelid IN (SELECT oid FROM exchanged)
      UNION ALL
      SELECT 'pg_trigger'::regclass, oid FROM pg_trigger WHERE tgenabled = 'O'
      UNION ALL
      SELECT 'pg_attrdef'::regclass, oid FROM pg_attrdef
      UNION ALL
      SELECT 'pg_type'::regclass, oid FROM pg_type
    )
    SELECT has_database_privilege(current_database(), 'CREATE') AND to_regnamespace(${ASIDE}) IS NULL
      AND bool_and(
        relowner = (SELECT oid FROM pg_roles WHERE rolname = current_user)
        AND has_schema_privilege(relnamespace, 'CREATE')
        AND (relkind, relpersistence, relreplident, reltablespace) = ('r', 'p', 'd', 0)
        AND reloptions IS NULL AND NOT relrowsecurity AND obj_description(oid, 'pg_class') IS NULL
      )
      AND NOT EXISTS (
        SELECT FROM pg_attribute
        WHERE attrelid IN (SELECT oid FROM exchanged) AND num_nonnulls(attacl, attoptions, nullif(attstattarget, -1)) > 0
          AND attnum > 0
      )
      AND NOT EXISTS (SELECT FROM dependents WHERE (classid, objid) NOT IN (SELECT * FROM own_dependents))
      AND NOT EXISTS (SELECT FROM pg_publication)
      AND NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'logical' AND database = current_database())
      AND NOT EXISTS (SELECT FROM pg_default_acl WHERE defaclnamespace = 0 AND defaclobjtype = 'r') AS may
    FROM exchanged`;
  return row?.may ?? false;
}

/**
 * Exchanges the tables for new ones, unless there is no moment for it without readers.
 * @param fill writes all rows of the new tables, reading the old ones; only CHECK and NOT NULL hold meanwhile
 * @returns whether the tables were exchanged; where they were not, nothing has changed
 */
export async function exchangeTables(sql: TransactionSql, fill: () => Promise<void>): Promise<boolean> {
  const { schema, path } = await placeOf(sql);
  const completions = await readCompletions(sql);
  await sql`SAVEPOINT nothing_aside`;
  await sql`CREATE SCHEMA ${sql(ASIDE)}`;
  for (const table of TABLES) {
    await sql`CREATE TABLE ${aside(sql, table)} (LIKE ${sql(table)} INCLUDING ALL EXCLUDING INDEXES)`;
  }
  await fill();
  await sql`SELECT set_config('search_path', ${`${ASIDE}, ${path}`}, true)`;
  for (const completion of completions) await sql.unsafe(completion);
  await sql`SELECT set_config('search_path', ${path}, true)`;
  // The numbers' key to the business profiles goes and comes with them, which changes both.
  if (!(await lockOutReaders(sql, [...TABLES, 'business_profiles']))) {
    await sql`ROLLBACK TO SAVEPOINT nothing_aside`;
    return false;
  }
  await sql`DROP TABLE ${sql(TABLES)}`;
  for (const table of TABLES) await sql`ALTER TABLE ${aside(sql, table)} SET SCHEMA ${sql(schema)}`;
  await sql`DROP SCHEMA ${sql(ASIDE)}`;
  return true;
}

/** The schema of the tables, and where names are looked up. */
async function placeOf(sql: TransactionSql): Promise<{ schema: string; path: string }> {
  const [place] = await sql<[{ schema: string; path: string }]>`
    SELECT nspname AS schema, current_setting('search_path') AS path
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE pg_class.oid = ${TABLES[0]}::text::regclass`;
  return place;
}

/**
 * The statements that give new tables what the old ones have beside their columns: indexes, keys, triggers, grants. Names
 * are not qualified, so that they mean the new tables where the search path has these first.
 */
async function readCompletions(sql: TransactionSql): Promise<string[]> {
  const completions = await sql<{ statement: string }[]>`
    SELECT statement
    FROM unnest(${TABLES}::text[]::regclass[]) AS name, LATERAL (
      SELECT 1, pg_get_indexdef(indexrelid, 0, true)
      FROM pg_index WHERE indrelid = name AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)
      UNION ALL
      SELECT CASE contype WHEN 'f' THEN 2 ELSE 1 END,
        format('ALTER TABLE %s ADD CONSTRAINT %I %s', name, conname, pg_get_constraintdef(oid))
      FROM pg_constraint WHERE conrelid = name AND contype IN ('p', 'u', 'x', 'f')
      UNION ALL
      SELECT 3, pg_get_triggerdef(oid, true) FROM pg_trigger WHERE tgrelid = name AND NOT tgisinternal
      UNION ALL
      SELECT 4, format('GRANT %s ON %s TO %s', privilege_type, name,
        CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END
          || CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
      FROM pg_class, aclexplode(relacl) WHERE oid = name
    ) AS completion (step, statement)
    ORDER BY step`;
  return completions.map(({ statement }) => statement);
}
