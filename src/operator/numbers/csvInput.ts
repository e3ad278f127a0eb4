/** Reads numbers from CSV: makes items of its rows, with the rows of one number in memory. */
import { type Header, readHeader } from './csvColumns.js';
import { type Row, rowsOf } from './csvRows.js';
import { type GivenNumber, readItem } from './line.js';
import { type Given, InputError, LineError, type LineFault, MAX_FAULTS } from './lines.js';
import { numberSchema } from './numberSchema.js';

const MAX_ENTRIES = numberSchema.properties?.carrierStatuses?.maxItems as number;

/** Nothing, or what spreadsheets make of a phone number: 14155550123, 1.41556E+10 or 14155550123.0. */
const NO_PHONE_NUMBER = /^(\d[\d.,]*(E\+?\d+)?)?$/i;

interface NumberRows {
  phoneNumber: string;
  first: Row;
  entries: { line: number; columns: Header['ofEntries'][number]; members: Record<string, string> }[];
  faults: LineFault[];
}

/**
 * Reads the numbers of a file.
 * @param start is the place before its first line
 * @param toRow returns the columns of a number in the text format of COPY
 * @param onEntryRows is called if each entry has a row, so that the rows of a number must stand together
 * @throws {InputError} if the file can't be read any further
 */
export async function* readCsv(
  chunks: AsyncIterable<Buffer>,
  start: number,
  toRow: (number: GivenNumber) => string,
  onEntryRows: () => void,
): AsyncGenerator<Given[]> {
  let header: Header | undefined;
  let number: NumberRows | undefined;
  for await (const rows of rowsOf(chunks, start)) {
    for (const row of rows) {
      if (!header) {
        header = readHeader(row);
        if (header.hasEntryRows) onEntryRows();
        continue;
      }
      const phoneNumber = row.cells[header.phoneNumber] ?? '';
      const isSame = header.hasEntryRows && phoneNumber !== '' && phoneNumber === number?.phoneNumber;
      if (number && !isSame) yield [givenBy(header, number, toRow)];
      if (!number || !isSame) number = { phoneNumber, first: row, entries: [], faults: [] };
      if (number.faults.length < MAX_FAULTS) addRow(header, number, row);
    }
  }
  if (header && number) yield [givenBy(header, number, toRow)];
}

function addRow(header: Header, { phoneNumber, first, entries, faults }: NumberRows, { line, cells }: Row): void {
  const unnamed = cells.findIndex((cell, i) => cell.trim() !== '' && !header.columns[i]);
  const isBeyondHeader = unnamed >= header.columns.length;
  if (isBeyondHeader) {
    faults.push({ line, phoneNumber, reason: 'has too many cells: put a cell that has the delimiter in quotes' });
    return;
  }
  if (unnamed >= 0) {
    const reason = `column ${unnamed + 1} has a value, but no name: name or delete it`;
    throw new InputError([{ line, phoneNumber, reason }]);
  }
  for (const { i, name } of header.ofNumber) {
    if ((cells[i] ?? '') === (first.cells[i] ?? '')) continue;
    faults.push({ line, phoneNumber, reason: `${name} differs in another row of the number`, earlier: first.line });
  }
  for (const columns of header.ofEntries) {
    // One entry too many is enough to reject the number.
    if (!columns.some(({ i }) => cells[i]) || entries.length > MAX_ENTRIES) continue;
    const given = columns.filter(({ i, isRequired }) => isRequired || cells[i]);
    const members = Object.fromEntries(given.map(({ i, member }) => [member, cells[i] ?? '']));
    entries.push({ line, columns, members: { ...columns[0]?.entry, ...members } });
  }
}

function givenBy(header: Header, number: NumberRows, toRow: (number: GivenNumber) => string): Given {
  const { phoneNumber, first, entries, faults } = number;
  const item: Record<string, unknown> = { carrierStatuses: entries.map(({ members }) => members) };
  for (const { i, parent, member, isRequired } of header.ofNumber) {
    const text = first.cells[i] ?? '';
    // An optional member without a value is kept, or made.
    if (!text && !isRequired) continue;
    if (parent) item[parent] = { ...(item[parent] as object), [member]: text };
    else item[member] = text;
  }
  try {
    const read = readItem(item);
    return faults.length > 0 ? { faults } : { line: first.line, row: toRow(read) };
  } catch (error) {
    if (!(error instanceof LineError)) throw error;
    // The other faults of the rows may have the same cause.
    if (NO_PHONE_NUMBER.test(phoneNumber)) {
      const reason = phoneNumber
        ? 'phoneNumber has become a number: make its column text, and enter it again, for example +14155550123'
        : 'phoneNumber must not be empty: repeat it in each row of the number';
      return { faults: [{ line: first.line, phoneNumber, reason }] };
    }
    return { faults: [...faults, ...error.reasons.map((reason) => inColumns(reason, number))] };
  }
}

/** Returns the fault of an item, which begins with the path of a member, as that of a line and column. */
function inColumns(reason: string, { phoneNumber, first, entries }: NumberRows): LineFault {
  const [path = '', i, member] = /^carrierStatuses\[(\d+)\]\.?(\w*)/.exec(reason) ?? [];
  const { line, columns } = entries[Number(i)] ?? { ...first, columns: [] };
  const column = columns.find((known) => known.member === member) ?? columns[0];
  return { line, phoneNumber, reason: `${column?.name ?? ''}${reason.slice(path.length)}` };
}
