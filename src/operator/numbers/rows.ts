/** Rows to write, as lines of text: in spools, in memory, and as a parameter of a statement. */
import type { Fragment } from 'postgres';
import type { Transaction } from '../../database/connection.js';

/**
 * A row as text: the number of entries that writing it concerns, then its columns, separated by tabs. The first column
 * is the key, by which the row is locked; an empty column is null.
 */
export type Row = string;

/** The columns of rows of one kind, in order, with their types. */
export type Columns = Readonly<Record<string, string>>;

/** Returns the SQL that makes a row of the columns of the table `given`. */
export const rowOfGiven = (sql: Transaction, columns: Columns, entries: Fragment) => sql`
  array_to_string(ARRAY[(${entries})::text, ${listOf(sql, columns, (name) => `given.${name}::text`)}], E'\\t', '')`;

/** Returns rows as a FROM item, the table `given`. */
export const tableOf = (sql: Transaction, columns: Columns, rows: readonly Row[]) => sql`(
  SELECT ${listOf(sql, columns, (name, type, i) => `line[${i + 2}]::${type} AS ${name}`)}
  FROM (
    SELECT string_to_array(line, E'\\t', '') AS line FROM string_to_table(${rows.join('\n')}, E'\\n') AS line OFFSET 0
  ) AS lines
) AS given`;

/** Returns a list of SQL expressions or definitions, one for each column. */
export const listOf = (
  sql: Transaction,
  columns: Columns,
  element: (name: string, type: string, i: number) => string,
) =>
  sql.unsafe(
    Object.entries(columns)
      .map(([name, type], i) => element(name, type, i))
      .join(', '),
  );

/** Returns the key of a row. */
export function keyOf(row: Row): string {
  const [, key = ''] = row.split('\t', 2);
  return key;
}

/** The work of a row without entries, and of each character of a row, in entries. An entry takes some 25 µs. */
const ENTRIES_PER_ROW = 5;
const ENTRIES_PER_CHARACTER = 0.002;

/** Estimates the work of writing a row, in entries. */
export function workOf(row: Row): number {
  return ENTRIES_PER_ROW + Number.parseInt(row, 10) + ENTRIES_PER_CHARACTER * row.length;
}
