/** Exports numbers as NDJSON: the items of the list, in its order, from one snapshot, with one page in memory. */
import { type Transaction, withConnection } from '../../database/connection.js';
import type { Filter } from '../../page/filter.js';
import { preparePages } from '../../page/page.js';

/** Numbers per page: larger pages are hardly faster, and take more memory. */
const PAGE_SIZE = 1000;

/**
 * Exports the numbers that match `filter`, one item per line as in a response, ordered by phone number.
 * @param write writes some lines, and resolves when it can take more
 * @param onWritten is called after each page, with the count of numbers so far
 * @returns the counts of written numbers and entries
 */
export function exportNumbers(
  url: string,
  filter: Filter,
  write: (lines: string) => Promise<void>,
  onWritten: (numbers: number) => void = () => {},
): Promise<{ numbers: number; carrierStatuses: number }> {
  const read = async (sql: Transaction) => {
    // Before the snapshot is taken: a table that is truncated or replaced after that would read as empty.
    await sql`LOCK TABLE business_profiles, items, postings, terms IN ACCESS SHARE MODE`;
    // It is idle while `write` waits.
    await sql`SET LOCAL idle_in_transaction_session_timeout = 0`;
    const readPage = preparePages();
    const counts = { numbers: 0, carrierStatuses: 0 };
    for (let after: string | null = ''; after !== null; ) {
      const page = await readPage(sql, { filter, visibleProfiles: null, after, size: PAGE_SIZE });
      const { count, last, hasNext } = page;
      // Not parsed, which would double the time: quotes inside strings are escaped, so these texts are between items and members.
      const items = `${Buffer.concat(page.items)}`;
      if (count > 0) await write(`${items.replaceAll(',{"id":"', '\n{"id":"')}\n`);
      counts.numbers += count;
      counts.carrierStatuses += items.split('"detailedStatus":').length - 1;
      onWritten(counts.numbers);
      after = hasNext ? last : null;
    }
    return counts;
  };
  return withConnection(url, (connection) => connection.transaction('REPEATABLE READ READ ONLY', read));
}
