/** The planner's statistics of the tables. */
import type { Sql } from 'postgres';

/** Only a superuser may change these catalogs, but that works on every version; functions exist since PostgreSQL 18. */
export const tables = (sql: Sql) => sql`(SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)`;

/** Sets the statistics of one row that ANALYZE would leave during a first import; `part` of its pages, from 0 to 1, exist. */
export async function fakeOneRowStatistics(sql: Sql, part: number): Promise<void> {
  await sql`ANALYZE`;
  await sql`
    UPDATE pg_class SET reltuples = 1, relpages = ceil(relpages * ${part}::float8), relallvisible = 0
    WHERE oid IN ${tables(sql)}`;
  await sql`
    UPDATE pg_statistic SET stadistinct = -1, stakind1 = 0, stakind2 = 0, stakind3 = 0, stakind4 = 0, stakind5 = 0
    WHERE starelid IN ${tables(sql)}`;
}
