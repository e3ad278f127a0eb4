/** Exports numbers as NDJSON: what the list shows, in its order, from one snapshot, a page in memory at a time. */
import type { Database } from '../database/connect.js';
import { inTransaction } from '../database/transaction.js';
import { preparePages } from '../page/page.js';
import type { Filter } from '../request/filter.js';

/** Larger pages take hardly less time for each number, and more memory. */
const PAGE_SIZE = 1000;

/**
 * Exports the numbers that match `filter`, one item on each line as in an answer, ordered by phone number.
 * @param write is given some lines at a time, and no more until it has resolved
 * @returns how many numbers and entries were written
 */
export function exportNumbers(
  database: Database,
  filter: Filter,
  write: (lines: string) => Promise<void>,
): Promise<{ numbers: number; carrierStatuses: number }> {
  return inTransaction(database, 'REPEATABLE READ READ ONLY', async (sql) => {
    // Locked before the first snapshot: a table that is truncated or replaced after it would read as empty.
    await sql`LOCK TABLE business_profiles, items, postings, terms IN ACCESS SHARE MODE`;
    const readPage = preparePages(sql);
    const counts = { numbers: 0, carrierStatuses: 0 };
    for (let after: string | null = ''; after !== null; ) {
      const page = await readPage({ filter, visibleProfiles: null, after, size: PAGE_SIZE });
      const { count, last, hasNext } = page;
      const items = `${Buffer.concat(page.items)}`;
      if (count > 0) await write(`${linesOf(items)}\n`);
      counts.numbers += count;
      counts.carrierStatuses += entriesIn(items);
      after = hasNext ? last : null;
    }
    return counts;
  });
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
