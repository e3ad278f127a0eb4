/** Rows to write, as lines of text: in spools, in memory, and in a setting of the transaction that writes them. */
import type { Fragment, PendingQuery, Row as Values } from 'postgres';
import type { Transaction } from '../../database/connection.js';

/**
 * A row as text: the number of entries that writing it concerns, then its columns, separated by tabs. The first column
 * is the key, by which the row is locked; an empty column is null.
 */
export type Row = string;

export type Find = (sql: Transaction) => PendingQuery<{ row: Row }[]>;

/** The columns of rows of one kind, in order, with their types. */
export type Columns = Readonly<Record<string, string>>;

/** Returns the SQL that makes a row of the columns of the table `given`. */
export const rowOfGiven = (sql: Transaction, columns: Columns, entries: Fragment) => sql`
  array_to_string(ARRAY[(${entries})::text, ${listOf(sql, columns, (name) => `given.${name}::text`)}], E'\\t', '')`;

/**
 * Sends rows to the transaction, for `givenRows` and `givenKeys` of its later statements. The setting begins with a line feed, so
 * that it is empty only after a trigger has reset it.
 */
export const give = (sql: Transaction, rows: readonly Row[]): PendingQuery<Values[]> =>
  sql`SELECT set_config('branded_phone_numbers.given', ${`\n${rows.join('\n')}`}, true) IS NULL`;

/** Returns a statement that fails if the transaction has lost the rows that it was given. */
export const requireGiven = (sql: Transaction) => sql`
  DO $$ BEGIN IF current_setting('branded_phone_numbers.given') = '' THEN
    RAISE 'a trigger has reset the settings of the transaction (RESET ALL), among them the rows to write: remove that from it';
  END IF; END $$`;

/** Returns the clauses FROM and WHERE that give the rows. Not by `substr`, which counts the characters of the whole text. */
const fromGiven = (sql: Transaction) =>
  sql`FROM string_to_table(current_setting('branded_phone_numbers.given'), E'\\n') AS line WHERE line <> ''`;

const lines = (sql: Transaction) =>
  sql`(SELECT string_to_array(line, E'\\t', '') AS line ${fromGiven(sql)} OFFSET 0) AS lines`;

/** Returns the rows that the transaction was given as a FROM item, the table `given`. */
export const givenRows = (sql: Transaction, columns: Columns) => sql`
  (SELECT ${listOf(sql, columns, (name, type, i) => `line[${i + 2}]::${type} AS ${name}`)} FROM ${lines(sql)}) AS given`;

/** Returns an array of the keys of the rows that the transaction was given. */
export const givenKeys = (sql: Transaction) => sql`ARRAY(SELECT line[2] FROM ${lines(sql)} ORDER BY 1)`;

/**
 * Returns a statement that locks rows. Unless `waits` is set, it skips those that another transaction holds: it takes them away
 * from the rows that the transaction was given, and returns their keys, one per line, as `busy`.
 * @param existing selects the rows that exist, with their keys in the first column
 */
export const lockGiven = (sql: Transaction, waits: boolean, existing: Fragment, mode: Fragment) => sql`
  WITH locked AS MATERIALIZED (${existing} ${mode} ${waits ? sql`` : sql`SKIP LOCKED`}),
  busy AS MATERIALIZED (SELECT DISTINCT key::text FROM ((${existing}) EXCEPT TABLE locked) AS other (key)),
  free AS (
    SELECT string_agg(line, E'\\n') AS rows ${fromGiven(sql)} AND split_part(line, E'\\t', 2) NOT IN (TABLE busy)
  )
  SELECT string_agg(key, E'\\n') AS busy,
    set_config('branded_phone_numbers.given', concat(E'\\n', (SELECT rows FROM free)), true) IS NULL
  FROM busy HAVING count(*) > 0`;

/** Returns a list of SQL expressions or definitions, one for each column. */
export function listOf(sql: Transaction, columns: Columns, element: (name: string, type: string, i: number) => string) {
  const elements = Object.entries(columns).map(([name, type], i) => element(name, type, i));
  return sql.unsafe(elements.join(', '));
}

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
