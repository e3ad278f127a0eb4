/** Writes items as CSV that `csvInput.ts` reads, with a row for each entry. */
import type { BrandedPhoneNumber } from '../../../generated/types/models/index.js';
import { COLUMNS, isOfEntry } from './csvColumns.js';

/** The row of the columns' names, after a byte order mark, by which Excel knows UTF-8. */
export const HEADER = `\ufeff${COLUMNS.map(({ name }) => name).join()}\n`;

const OF_ENTRIES = COLUMNS.flatMap((column, i) => (isOfEntry(column) ? [{ ...column, i }] : []));

/** Returns lines of NDJSON as rows of CSV. */
export function toCsv(ndjson: string): string {
  const rows = ndjson.split('\n').map((line) => (line ? rowsOf(JSON.parse(line)) : ''));
  return rows.join('');
}

type Members = Readonly<Record<string, string | null | undefined>>;

/** Returns a row for each entry of an item, or one row if it has none. */
function rowsOf(item: BrandedPhoneNumber & Record<string, unknown>): string {
  // Those of the number are the same in each row.
  const cells = COLUMNS.map(({ parent, member }) => cellOf(((parent ? item[parent] : item) as Members)[member]));
  const entries = item.carrierStatuses.length > 0 ? item.carrierStatuses : [{}];
  const rows = entries.map((entry) => {
    for (const { i, member } of OF_ENTRIES) cells[i] = cellOf((entry as Members)[member]);
    return `${cells.join()}\n`;
  });
  return rows.join('');
}

/** Returns a value as RFC 4180 writes it: in quotes if it has a quote, or what may be a delimiter or end a row. */
function cellOf(value: string | null = ''): string {
  return value && /[",;\t\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : (value ?? '');
}
