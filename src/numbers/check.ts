/** Derives everything again (drizzle/0001_derive.sql), finds what differed, and keeps the result or not. */
import type { TransactionSql } from 'postgres';
import type { Database } from '../database/connect.js';
import { inTransactions, planForWholeTables } from '../database/transaction.js';
import { lockOutWriters } from './locks.js';

/** Numbers that are derived together, and postings that are deleted; meanwhile other writers wait, for about a second. */
const NUMBERS = 2_000;
const POSTINGS = 10_000;
const MAX_EXAMPLES = 5;

/**
 * Derives all numbers again, whatever the read model holds for them, a batch at a time.
 * @param options.keep whether to keep what was derived; otherwise it is rolled back, and nothing has changed
 * @returns what differed: how many numbers, and the first of them; nothing where all was right
 */
export async function deriveAll(database: Database, { keep }: { keep: boolean }) {
  const items = { what: 'differ from what they are derived from', count: 0, examples: [] as string[] };
  const postings = { what: 'stand in the index where they should not', count: 0, examples: [] as string[] };
  await inTransactions(database, async (begin) => {
    for (let last: string | null = ''; last !== null; ) {
      const after: string = last;
      const batch = await begin('READ COMMITTED', (sql) => deriveBatch(database, sql, after, keep));
      items.count += batch.count;
      items.examples = [...items.examples, ...batch.examples].slice(0, MAX_EXAMPLES);
      last = batch.last;
    }
    const { total, ...found } = await begin('READ COMMITTED', findStrayPostings);
    Object.assign(postings, found);
    for (let done = 0; keep && done < total; done += POSTINGS) {
      await begin('READ COMMITTED', (sql) => deleteStrayPostings(database, sql, done));
    }
  });
  return [items, postings].filter(({ count }) => count > 0);
}

/** Derives the next numbers after a phone number; `last` is the last of them, null where there are none. */
async function deriveBatch(database: Database, sql: TransactionSql, after: string, keep: boolean) {
  await lockOutWriters(database, sql);
  await sql`SAVEPOINT before`;
  const [found] = await sql<[{ count: number; examples: string[]; last: string | null }]>`
    WITH batch AS MATERIALIZED (
      (SELECT phone_number FROM branded_phone_numbers WHERE phone_number > ${after} ORDER BY 1 LIMIT ${NUMBERS})
      UNION (SELECT phone_number FROM items WHERE phone_number > ${after} ORDER BY 1 LIMIT ${NUMBERS})
      ORDER BY 1 LIMIT ${NUMBERS}
    ), derived AS MATERIALIZED (
      SELECT DISTINCT phone_number FROM derive(ARRAY(TABLE batch)) AS phone_number
    )
    SELECT
      (SELECT count(*)::int FROM derived), to_json(ARRAY(TABLE derived ORDER BY 1 LIMIT ${MAX_EXAMPLES})) AS examples,
      (SELECT max(phone_number) FROM batch) AS last`;
  if (!keep) await sql`ROLLBACK TO before`;
  return found;
}

/**
 * Finds the postings under terms that their number's item does not have: derive() looks only at those that it has. Those of
 * numbers without an item have been counted already. Others write meanwhile: one statement sees items and postings that
 * belong together. They are kept for the connection's next transactions.
 */
async function findStrayPostings(sql: TransactionSql) {
  await planForWholeTables(sql);
  // Where statistics are of one row, each posting would be compared with all numbers.
  await sql`SET LOCAL enable_nestloop = off`;
  await sql`SET LOCAL work_mem = '128MB'`;
  await sql`
    CREATE TEMPORARY TABLE stray AS
    SELECT row_number() OVER (ORDER BY term_id, phone_number) AS ordinal, term_id, phone_number
    FROM postings
    LEFT JOIN items USING (phone_number)
    LEFT JOIN branded_phone_numbers AS number USING (phone_number)
    WHERE CASE WHEN items.id IS NULL THEN number.id IS NULL ELSE term_id <> ALL (term_ids) END`;
  await sql`ALTER TABLE stray ADD PRIMARY KEY (ordinal)`;
  const [found] = await sql<[{ count: number; examples: string[]; total: number }]>`
    SELECT count(DISTINCT phone_number)::int, count(*)::int AS total,
      to_json(ARRAY(SELECT DISTINCT phone_number FROM stray ORDER BY 1 LIMIT ${MAX_EXAMPLES})) AS examples
    FROM stray`;
  return found;
}

/**
 * Deletes those of the next stray postings that are still stray once nobody else writes. What they need is looked up by
 * primary keys, whatever the statistics: nothing else has it in order.
 */
async function deleteStrayPostings(database: Database, sql: TransactionSql, done: number): Promise<void> {
  await lockOutWriters(database, sql);
  await sql`
    DELETE FROM postings
    WHERE ctid = ANY (ARRAY(
      SELECT (
        SELECT ctid FROM postings
        WHERE postings.term_id = stray.term_id AND postings.phone_number BETWEEN stray.phone_number AND stray.phone_number
        ORDER BY postings.phone_number
      ) FROM stray WHERE ordinal > ${done} AND ordinal <= ${done + POSTINGS}
    )) AND term_id <> ALL (coalesce((
      SELECT term_ids FROM items WHERE items.phone_number BETWEEN postings.phone_number AND postings.phone_number
      ORDER BY items.phone_number
    ), '{}'))`;
}
