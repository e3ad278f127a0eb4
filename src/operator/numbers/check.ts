/**
 * Compares the read model with its sources by deriving it again (drizzle/current.sql), and repairs it on request.
 */
import type { PendingQuery } from 'postgres';
import type { Transaction } from '../../database/connection.js';
import { planForWholeTables } from '../../database/driver.js';
import { retryInOutage } from '../../database/outage.js';
import { lockToDeriveOrListBusy } from './numberLocks.js';
import { type Columns, keyOf, type Row, rowOfGiven, tableOf } from './rows.js';
import { Spool } from './spool.js';
import { OUTAGE_MS, RETRY_INTERVAL_MS, runSteps, type Steps } from './steps.js';
import { inWatchedTransaction } from './watchedTransaction.js';

const MAX_EXAMPLES = 5;
/** Rows per fetch from PostgreSQL. */
const ROWS_AT_ONCE = 1000;

/** A way in which numbers may differ from their sources. */
interface Examination extends Steps {
  /** What is wrong, after "1 number" and "N numbers" in a message. */
  what: { one: string; many: string };
  /** Selects the rows to examine, in order of phone number. */
  find(sql: Transaction): PendingQuery<{ row: Row }[]>;
}

type OnProgress = (done: number, total: number) => void;

/** Numbers that differ in the same way. */
interface Difference {
  /** What is wrong, after their count. */
  what: string;
  count: number;
  /** The first phone numbers, at most `MAX_EXAMPLES`. */
  examples: string[];
}

/**
 * Derives all numbers again, in steps, and finds stale postings.
 * @param options.keep whether to keep the derived rows and delete stale postings; otherwise nothing changes
 * @param options.onProgress is called after each step that derives, with how many of all numbers are done
 * @returns the differences, empty if the read model matches its sources
 */
export async function deriveAll(
  url: string,
  { keep, onProgress }: { keep: boolean; onProgress?: OnProgress },
): Promise<Difference[]> {
  const differences = [await examine(url, items(keep), onProgress), await examine(url, postings(keep))];
  return differences.filter(({ count }) => count > 0);
}

async function examine(
  url: string,
  { what, find, ...steps }: Examination,
  onProgress: OnProgress = () => {},
): Promise<Difference> {
  const found: Omit<Difference, 'what'> = { count: 0, examples: [] };
  let done = 0;
  const onWritten = (count: number, differing: string[]) => {
    done += count;
    onProgress(done, spool.length);
    found.count += differing.length;
    found.examples = [...found.examples, ...differing].sort().slice(0, MAX_EXAMPLES);
  };
  const spool = await retryInOutage(() => spoolOf(url, find), { forMs: OUTAGE_MS, everyMs: RETRY_INTERVAL_MS });
  try {
    await runSteps(url, spool, { ...steps, onWritten });
    return { ...found, what: found.count === 1 ? what.one : what.many };
  } finally {
    spool.close();
  }
}

async function spoolOf(url: string, find: Examination['find']): Promise<Spool> {
  const spool = new Spool();
  try {
    await inWatchedTransaction(url, 'READ COMMITTED', async (sql) => {
      await planForWholeTables(sql);
      // After a bulk load in one transaction, the planner may expect one row, and a nested loop would compare each row
      // with all others.
      await sql`SET LOCAL enable_nestloop = off`;
      await sql`SET LOCAL work_mem = '128MB'`;
      for await (const rows of find(sql).cursor(ROWS_AT_ONCE)) for (const { row } of rows) spool.add(row);
    });
    return spool;
  } catch (error) {
    spool.close();
    throw error;
  }
}

const NUMBER: Columns = { phone_number: 'text COLLATE "C"' };

/** All numbers, and items of numbers that are gone: derives them. */
const items = (keep: boolean): Examination => ({
  what: { one: 'differs from its sources', many: 'differ from their sources' },
  find: (sql) => sql<{ row: Row }[]>`
    SELECT ${rowOfGiven(sql, NUMBER, sql`coalesce(entries, 0)`)} AS row
    FROM (
      SELECT phone_number, entries FROM branded_phone_numbers FULL JOIN items USING (phone_number)
      LEFT JOIN (SELECT phone_number, count(*) AS entries FROM carrier_statuses GROUP BY 1) AS entry USING (phone_number)
    ) AS given
    ORDER BY phone_number`,
  lockOrListBusy: lockToDeriveOrListBusy,
  async write(sql, rows) {
    // derive() compares by several statements, each with its own snapshot. A number that another program inserts
    // meanwhile, which could not be locked, may seem to differ, but not twice.
    const differing = await differingOf(sql, rows.map(keyOf), false);
    return differing.length > 0 ? differingOf(sql, differing, keep) : [];
  },
});

/** Derives numbers. Returns those that differed, and keeps what was derived only if `keep` is set. */
async function differingOf(sql: Transaction, phoneNumbers: string[], keep: boolean): Promise<string[]> {
  await sql`SAVEPOINT before_derive`;
  const differing = await sql<{ key: string }[]>`
    SELECT DISTINCT key FROM derive(${phoneNumbers}::text[]) AS key ORDER BY key`;
  if (!keep) await sql`ROLLBACK TO before_derive`;
  return differing.map(({ key }) => key);
}

const STALE: Columns = { phone_number: 'text COLLATE "C"', terms: 'bigint[]' };

/**
 * Postings under terms that their number's item does not have, which derive() does not look at. Numbers without an item
 * were counted before, when they were derived. One statement reads both tables, so that it sees a consistent state
 * beside other writers.
 */
const postings = (keep: boolean): Examination => ({
  what: { one: 'has stale index entries', many: 'have stale index entries' },
  find: (sql) => sql<{ row: Row }[]>`
    SELECT ${rowOfGiven(sql, STALE, sql`cardinality(terms)`)} AS row
    FROM (
      SELECT phone_number, array_agg(term_id) AS terms
      FROM postings
      LEFT JOIN items USING (phone_number)
      LEFT JOIN branded_phone_numbers AS number USING (phone_number)
      WHERE CASE WHEN items.id IS NULL THEN number.id IS NULL ELSE term_id <> ALL (term_ids) END
      GROUP BY phone_number
    ) AS given
    ORDER BY phone_number`,
  async lockOrListBusy(sql) {
    // The table, since a posting may belong to a number that another transaction is inserting.
    if (keep) await sql`LOCK TABLE branded_phone_numbers IN EXCLUSIVE MODE`;
    return [];
  },
  async write(sql, rows) {
    if (keep) await deletePostings(sql, rows);
    return rows.map(keyOf);
  },
});

/**
 * Deletes the postings that their number's item does not have now. They are looked up by the primary key, whatever the
 * statistics: no other index has them in order.
 */
async function deletePostings(sql: Transaction, rows: Row[]): Promise<void> {
  await sql`
    DELETE FROM postings
    WHERE ctid = ANY (ARRAY(
      SELECT (
        SELECT ctid FROM postings
        WHERE postings.term_id = stale.term_id AND postings.phone_number BETWEEN stale.phone_number AND stale.phone_number
        ORDER BY postings.phone_number
      )
      FROM (SELECT phone_number, unnest(terms) AS term_id FROM ${tableOf(sql, STALE, rows)}) AS stale
    )) AND term_id <> ALL (coalesce((
      SELECT term_ids FROM items WHERE items.phone_number BETWEEN postings.phone_number AND postings.phone_number
      ORDER BY items.phone_number
    ), '{}'))`;
}
