/** Derives everything again (drizzle/0001_derive.sql), finds what differed, and keeps the result or not. */
import type { Database } from '../database/connect.js';
import { inTransaction, planForWholeTables, type Transaction } from '../database/transaction.js';
import { UserError } from '../userError.js';
import { lockNumbers } from './numberLocks.js';
import { Spool } from './spool.js';
import { type Row, runSteps } from './steps.js';

const MAX_EXAMPLES = 5;
/** Rows that are read at once from PostgreSQL. */
const ROWS_AT_ONCE = 1000;

/** Numbers with the same difference. */
interface Difference {
  what: string;
  count: number;
  /** The first of them. */
  examples: string[];
}

/**
 * Derives all numbers again, whatever the read model holds for them, in steps.
 * @param options.keep whether to keep what was derived; otherwise it is rolled back, and nothing has changed
 * @returns what differed; nothing if all was right
 */
export async function deriveAll(database: Database, { keep }: { keep: boolean }): Promise<Difference[]> {
  const [{ isReplica }] = await database.$client<[{ isReplica: boolean }]>`SELECT pg_is_in_recovery() AS "isReplica"`;
  if (isReplica) throw new UserError('DATABASE_URL is a read-only replica: run check on its primary');
  const items = await deriveItems(database, keep);
  const strays = new Spool();
  try {
    const postings = await findStrayPostings(database, strays);
    if (keep && strays.length > 0) await deleteStrayPostings(database, strays);
    return [items, postings].filter(({ count }) => count > 0);
  } finally {
    strays.close();
  }
}

async function deriveItems(database: Database, keep: boolean): Promise<Difference> {
  const found: Difference = { what: 'differ from their sources', count: 0, examples: [] };
  let derived: string[] = [];
  let last = '';
  await runSteps(database, {
    async take(count) {
      const rows = await database.$client<Row[]>`
          (SELECT phone_number AS key, '' AS json FROM branded_phone_numbers WHERE phone_number > ${last} ORDER BY 1 LIMIT ${count})
          UNION
          (SELECT phone_number, '' FROM items WHERE phone_number > ${last} ORDER BY 1 LIMIT ${count})
          ORDER BY 1 LIMIT ${count}`;
      last = rows.at(-1)?.key ?? last;
      return rows;
    },
    lock: lockNumbers,
    async write(sql, rows) {
      await sql`SAVEPOINT before`;
      const differing = await sql<{ key: string }[]>`
          SELECT DISTINCT key FROM derive(${rows.map(({ key }) => key)}::text[]) AS key`;
      if (!keep) await sql`ROLLBACK TO before`;
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
 * Finds the postings under terms that their number's item does not have: derive() looks only at those that it has. Those of
 * numbers without an item have been counted already. Others write meanwhile: one statement sees items and postings that
 * belong together.
 */
async function findStrayPostings(database: Database, strays: Spool): Promise<Difference> {
  const found: Difference = { what: 'have stale index entries', count: 0, examples: [] };
  let last: string | undefined;
  await inTransaction(database, 'READ COMMITTED', async (sql) => {
    await planForWholeTables(sql);
    // After another program has loaded all numbers in one transaction, statistics may be of one row, and each posting would
    // be compared with all numbers.
    await sql`SET LOCAL enable_nestloop = off`;
    await sql`SET LOCAL work_mem = '128MB'`;
    const postings = sql<Row[]>`
      SELECT phone_number AS key, term_id::text AS json
      FROM postings
      LEFT JOIN items USING (phone_number)
      LEFT JOIN branded_phone_numbers AS number USING (phone_number)
      WHERE CASE WHEN items.id IS NULL THEN number.id IS NULL ELSE term_id <> ALL (term_ids) END
      ORDER BY phone_number`;
    for await (const rows of postings.cursor(ROWS_AT_ONCE)) {
      for (const row of rows) {
        strays.add(row);
        if (row.key === last) continue;
        last = row.key;
        found.count++;
        if (found.examples.length < MAX_EXAMPLES) found.examples.push(row.key);
      }
    }
  });
  return found;
}

/** Deletes those of the stray postings that are still stray once nobody else writes, for a moment at a time. */
async function deleteStrayPostings(database: Database, strays: Spool): Promise<void> {
  await runSteps(database, {
    take: (count) => strays.take(count),
    async lock(sql) {
      // All writers, since a stray posting may be of a number that somebody is about to insert.
      await sql`LOCK TABLE branded_phone_numbers IN EXCLUSIVE MODE`;
      return [];
    },
    write: deletePostings,
  });
}

async function deletePostings(sql: Transaction, rows: Row[]): Promise<void> {
  const json = JSON.stringify(rows.map(({ key, json }) => ({ phone_number: key, term_id: json })));
  await sql`
    DELETE FROM postings USING json_to_recordset(${json}::text::json) AS stray (phone_number text COLLATE "C", term_id bigint)
    WHERE postings.term_id = stray.term_id AND postings.phone_number = stray.phone_number AND postings.term_id <> ALL (coalesce((
      SELECT term_ids FROM items WHERE items.phone_number = postings.phone_number
    ), '{}'))`;
}
