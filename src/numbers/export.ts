/** Exports numbers as NDJSON: what the list shows, in its order, from one snapshot, a page in memory at a time. */
import { drizzle } from 'drizzle-orm/postgres-js';
import type { Sql, TransactionSql } from 'postgres';
import type { Database } from '../database/connect.js';
import { inTransaction } from '../database/transaction.js';
import { preparePages } from '../page/page.js';
import type { Filter } from '../request/filter.js';

/** Larger pages take hardly less time for each number, and more memory. */
const PAGE_SIZE = 1000;

export interface ExportCounts {
  numbers: number;
  carrierStatuses: number;
}

/**
 * Exports the numbers that match `filter`, one item on each line as in an answer, ordered by phone number.
 * @param write is given some lines at a time, and no more until it has resolved
 * @param options.onProgress is called after each page; `total` is how many numbers there are, whatever the filter
 * @returns how many numbers and entries were written
 */
export function exportNumbers(
  database: Database,
  filter: Filter,
  write: (lines: string) => Promise<void>,
  { onProgress }: { onProgress?(progress: { numbers: number; total: number }): void } = {},
): Promise<ExportCounts> {
  return inTransaction(database, 'REPEATABLE READ READ ONLY', async (sql) => {
    // Locked before the first snapshot: a table that is truncated or replaced after it would read as empty.
    await sql`LOCK TABLE business_profiles, items, postings, terms IN ACCESS SHARE MODE`;
    const total = onProgress ? await countNumbers(sql) : 0;
    const readPage = preparePages(drizzle(Object.assign(sql as unknown as Sql, { options: database.$client.options })));
    const counts: ExportCounts = { numbers: 0, carrierStatuses: 0 };
    for (let after: string | null = ''; after !== null; ) {
      const { items, count, last, hasNext } = await readPage({ filter, visibleProfiles: null, after, size: PAGE_SIZE });
      if (count > 0) await write(`${linesOf(items)}\n`);
      counts.numbers += count;
      counts.carrierStatuses += entriesIn(items);
      onProgress?.({ numbers: counts.numbers, total });
      after = hasNext ? last : null;
    }
    return counts;
  });
}

async function countNumbers(sql: TransactionSql): Promise<number> {
  const [row] = await sql<[{ count: string }]>`SELECT count(*) FROM items`;
  return Number(row.count);
}

/**
 * A page's items, one per line. They are not parsed, which would take as long as reading them: inside a string, every
 * quote is escaped, so `,{"id":"` occurs only where an item begins.
 */
function linesOf(items: string): string {
  return items.replaceAll(',{"id":"', '\n{"id":"');
}

/** Inside a string the quotes would be escaped, so this counts only members. */
function entriesIn(items: string): number {
  return items.split('"detailedStatus":').length - 1;
}
