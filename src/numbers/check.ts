/** Derives everything again (drizzle/0001_derive.sql), finds what differed, and keeps the result or not. */
import type { TransactionSql } from 'postgres';
import type { Database } from '../database/connect.js';
import { inTransaction, planForWholeTables } from '../database/transaction.js';
import { lockOutWriters } from './locks.js';

/** Numbers for which the read model was wrong in one way: how many, and the first of them. */
export interface Difference {
  what: 'differ from what they are derived from' | 'stand in the index where they should not';
  count: number;
  examples: string[];
}

/** Numbers that are derived together; meanwhile other writers wait, for about a second. */
const BATCH_SIZE = 10_000;
const MAX_EXAMPLES = 5;

/**
 * Derives all numbers again, whatever the read model holds for them, a batch at a time.
 * @param options.keep whether to keep what was derived; otherwise it is rolled back, and nothing has changed
 * @returns what differed; nothing where all was right
 */
export async function deriveAll(database: Database, { keep }: { keep: boolean }): Promise<Difference[]> {
  const items: Difference = { what: 'differ from what they are derived from', count: 0, examples: [] };
  let last: string | null = '';
  while (last !== null) {
    const after: string = last;
    const batch = await derive(database, keep, (sql) => deriveBatch(sql, after));
    items.count += batch.count;
    items.examples = [...items.examples, ...batch.examples].slice(0, MAX_EXAMPLES);
    last = batch.last;
  }
  const postings = await derive(database, keep, deleteStrayPostings);
  return [items, { what: 'stand in the index where they should not' as const, ...postings }].filter(
    ({ count }) => count > 0,
  );
}

/** What a step found; it runs in its own transaction, which is committed or rolled back. */
function derive<T>(database: Database, keep: boolean, step: (sql: TransactionSql) => Promise<T>): Promise<T> {
  return inTransaction(database, 'READ COMMITTED', async (sql) => {
    await planForWholeTables(sql);
    await lockOutWriters(sql);
    await sql`SAVEPOINT before`;
    const found = await step(sql);
    if (!keep) await sql`ROLLBACK TO before`;
    return found;
  });
}

/** Derives the next numbers after a phone number; `last` is the last of them, null where there are none. */
async function deriveBatch(sql: TransactionSql, after: string) {
  const [found] = await sql<[{ count: number; examples: string[]; last: string | null }]>`
    WITH batch AS MATERIALIZED (
      (SELECT phone_number FROM branded_phone_numbers WHERE phone_number > ${after} ORDER BY 1 LIMIT ${BATCH_SIZE})
      UNION (SELECT phone_number FROM items WHERE phone_number > ${after} ORDER BY 1 LIMIT ${BATCH_SIZE})
      ORDER BY 1 LIMIT ${BATCH_SIZE}
    ), derived AS MATERIALIZED (
      SELECT DISTINCT phone_number FROM derive(ARRAY(TABLE batch)) AS phone_number
    )
    SELECT
      (SELECT count(*)::int FROM derived), to_json(ARRAY(TABLE derived ORDER BY 1 LIMIT ${MAX_EXAMPLES})) AS examples,
      (SELECT max(phone_number) FROM batch) AS last`;
  return found;
}

/**
 * Deletes postings under terms that their number's item does not have: derive() looks only at those that it has. Those of
 * numbers without an item have been counted already.
 */
async function deleteStrayPostings(sql: TransactionSql) {
  const [found] = await sql<[{ count: number; examples: string[] }]>`
    WITH stray AS (
      DELETE FROM postings WHERE NOT EXISTS (
        SELECT FROM items WHERE items.phone_number = postings.phone_number AND postings.term_id = ANY (items.term_ids)
      ) AND phone_number NOT IN (SELECT phone_number FROM branded_phone_numbers EXCEPT SELECT phone_number FROM items)
      RETURNING phone_number
    ), number AS MATERIALIZED (SELECT DISTINCT phone_number FROM stray)
    SELECT (SELECT count(*)::int FROM number), to_json(ARRAY(TABLE number ORDER BY 1 LIMIT ${MAX_EXAMPLES})) AS examples`;
  return found;
}
