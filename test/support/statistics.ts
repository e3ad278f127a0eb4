/** Sets the planner's statistics of the tables. */
import type { Sql } from 'postgres';

/** Written in a way that takes a superuser, but works on every version: functions for it came with PostgreSQL 18. */
export const tables = (sql: Sql) => sql`(SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)`;

/** Statistics of a single row, as an ANALYZE leaves them after this part of a first import, which is not committed yet. */
export async function fakeOneRowStatistics(sql: Sql, part: number): Promise<void> {
  await sql`ANALYZE`;
  await sql`
    UPDATE pg_class SET reltuples = 1, relpages = ceil(relpages * ${part}::float8), relallvisible = 0
    WHERE oid IN ${tables(sql)}`;
  await sql`
    UPDATE pg_statistic SET stadistinct = -1, stakind1 = 0, stakind2 = 0, stakind3 = 0, stakind4 = 0, stakind5 = 0
    WHERE starelid IN ${tables(sql)}`;
}
