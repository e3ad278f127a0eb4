/**
 * Compares the read model with its sources by deriving it again (drizzle/current.sql), and repairs it on request.
 */
import type { Database } from '../../database/connect.js';
import { inTransaction, planForWholeTables, type Transaction } from '../../database/transaction.js';
import { UserError } from '../../userError.js';
import { lockNumbers } from './numberLocks.js';
import { Spool } from './spool.js';
import { columnsOf, keyOf, type Row, runSteps } from './steps.js';

const MAX_EXAMPLES = 5;
/** Rows per fetch from PostgreSQL. */
const ROWS_AT_ONCE = 1000;

/** Numbers that differ in the same way. */
interface Difference {
  /** What is wrong, after "N numbers" in a message. */
  what: string;
  count: number;
  /** The first phone numbers, at most `MAX_EXAMPLES`. */
  examples: string[];
}

/**
 * Derives all numbers again, in steps, and finds stale postings.
 * @param options.keep whether to keep the derived rows and delete stale postings; otherwise nothing changes
 * @returns the differences, empty if the read model matches its sources
 * @throws {UserError} on a replica
 */
export async function deriveAll(database: Database, { keep }: { keep: boolean }): Promise<Difference[]> {
  const [{ isReplica }] = await database.$client<[{ isReplica: boolean }]>`SELECT pg_is_in_recovery() AS "isReplica"`;
  if (isReplica) throw new UserError('DATABASE_URL is a read-only replica: run check on its primary');
  const items = await deriveItems(database, keep);
  const stalePostings = new Spool();
  try {
    const postings = await findStalePostings(database, stalePostings);
    if (keep && stalePostings.length > 0) await deleteStalePostings(database, stalePostings);
    return [items, postings].filter(({ count }) => count > 0);
  } finally {
    stalePostings.close();
  }
}

async function deriveItems(database: Database, keep: boolean): Promise<Difference> {
  const found: Difference = { what: 'differ from their sources', count: 0, examples: [] };
  let derived: string[] = [];
  let last = '';
  await runSteps(database, {
    // derive() compares by several statements. With one snapshot for all of them, a number that another program inserts
    // meanwhile, which could not be locked, is not taken for one without an item.
    isolation: 'REPEATABLE READ',
    async take(count) {
      const rows = await database.$client<{ row: Row }[]>`
          (SELECT phone_number AS row FROM branded_phone_numbers WHERE phone_number > ${last} ORDER BY 1 LIMIT ${count})
          UNION
          (SELECT phone_number FROM items WHERE phone_number > ${last} ORDER BY 1 LIMIT ${count})
          ORDER BY 1 LIMIT ${count}`;
      last = rows.at(-1)?.row ?? last;
      return rows.map(({ row }) => row);
    },
    lock: lockNumbers,
    async write(sql, phoneNumbers) {
      await sql`SAVEPOINT before_derive`;
      const differing = await sql<{ key: string }[]>`
          SELECT DISTINCT key FROM derive(${phoneNumbers}::text[]) AS key`;
      if (!keep) await sql`ROLLBACK TO before_derive`;
      derived = differing.map(({ key }) => key);
    },
    onWritten() {
      found.count += derived.length;
      found.examples = [...found.examples, ...derived].sort().slice(0, MAX_EXAMPLES);
    },
  });
  return found;
}

/**
 * Finds postings under terms that their number's item does not have, which derive() does not look at, and adds them to
 * `stalePostings`. Numbers without an item were counted before, when they were derived. One statement reads both
 * tables, so that it sees a consistent state beside other writers.
 */
async function findStalePostings(database: Database, stalePostings: Spool): Promise<Difference> {
  const found: Difference = { what: 'have stale index entries', count: 0, examples: [] };
  let last: string | undefined;
  await inTransaction(database, 'READ COMMITTED', async (sql) => {
    await planForWholeTables(sql);
    // After a bulk load in one transaction, the planner may expect one row, and a nested loop would compare each
    // posting with all numbers.
    await sql`SET LOCAL enable_nestloop = off`;
    await sql`SET LOCAL work_mem = '128MB'`;
    const postings = sql<{ row: Row }[]>`
      SELECT concat_ws(E'\\t', phone_number, term_id) AS row
      FROM postings
      LEFT JOIN items USING (phone_number)
      LEFT JOIN branded_phone_numbers AS number USING (phone_number)
      WHERE CASE WHEN items.id IS NULL THEN number.id IS NULL ELSE term_id <> ALL (term_ids) END
      ORDER BY phone_number`;
    for await (const rows of postings.cursor(ROWS_AT_ONCE)) {
      for (const { row } of rows) {
        stalePostings.add(row);
        const phoneNumber = keyOf(row);
        if (phoneNumber === last) continue;
        last = phoneNumber;
        found.count++;
        if (found.examples.length < MAX_EXAMPLES) found.examples.push(phoneNumber);
      }
    }
  });
  return found;
}

/** Deletes postings that are still stale. Each step locks out other writers for a moment. */
async function deleteStalePostings(database: Database, stalePostings: Spool): Promise<void> {
  await runSteps(database, {
    take: (count) => stalePostings.take(count),
    async lock(sql) {
      // Locks the table, since a posting may belong to a number that another transaction is inserting.
      await sql`LOCK TABLE branded_phone_numbers IN EXCLUSIVE MODE`;
      return [];
    },
    write: deletePostings,
  });
}

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
      FROM (SELECT columns[1] COLLATE "C" AS phone_number, columns[2]::bigint AS term_id FROM ${columnsOf(sql, rows)}) AS stale
    )) AND term_id <> ALL (coalesce((
      SELECT term_ids FROM items WHERE items.phone_number BETWEEN postings.phone_number AND postings.phone_number
      ORDER BY items.phone_number
    ), '{}'))`;
}
