/** Reads the rows of CSV, as spreadsheet programs write it. */
import { parse } from 'csv-parse';
import { codeOf } from '../../database/errors.js';
import { InputError, MAX_LINE_BYTES, TOO_LONG } from './lines.js';

/** A row, and the place of its first line: a cell may have several. */
export interface Row {
  line: number;
  cells: string[];
}

const SAVE_AS = 'save it as "CSV UTF-8" (Excel), or as CSV with the character set UTF-8';

/** What is wrong with a file whose first bytes are these. */
const OTHER_FORMATS: readonly (readonly [RegExp, string])[] = [
  [/^(504b0304|d0cf11e0|1f8b)/, `is compressed or a file such as .xlsx, not CSV: ${SAVE_AS}`],
  [/^(fffe|feff|(..)?00)/, `is in UTF-16, which Excel calls Unicode Text: ${SAVE_AS}`],
  [/^(efbbbf)?[57]b/, 'is JSON, not CSV: NDJSON needs a file without the extension .csv, or --format ndjson'],
];
const NOT_UTF8 = `is not in UTF-8, but probably in an older character set: ${SAVE_AS}`;
const WRONG_QUOTE =
  'has a quote that is not closed or is in the wrong place: a cell with quotes must be in quotes, and double its own';
const CUT_OFF = 'has fewer cells than other rows, and no end: complete it, or end it with a line break';

/** What is wrong if csv-parse fails with such a code. */
const REASONS: Readonly<Record<string, string>> = {
  CSV_QUOTE_NOT_CLOSED: 'has a quote that is not closed until the end of the file: close it, or delete it',
  CSV_MAX_RECORD_SIZE: `${TOO_LONG}: close its quote, if one is open`,
};

/**
 * Yields the rows of a file that are not empty, those of a chunk together.
 * @param start is the place before its first line
 * @throws {InputError} if it is not CSV, after the rows before that
 */
export async function* rowsOf(chunks: AsyncIterable<Buffer>, start: number): AsyncGenerator<Row[]> {
  const rows: Row[] = [];
  let line = start + 1;
  let mostCells = 0;
  /** Takes away the rows from this one, and returns its fault. */
  const faultAt = (row: number, reason: string) => {
    const [first = { line }] = rows.splice(row);
    return new InputError([{ line: first.line, reason }]);
  };
  const parts = withWholeFirstLine(chunks);
  let part = await parts.next();
  const head = part.value || Buffer.alloc(0);
  const [, otherFormat] = OTHER_FORMATS.find(([form]) => form.test(head.toString('hex', 0, 8))) ?? [];
  if (otherFormat) throw faultAt(0, otherFormat);
  const parser = parse({
    bom: true,
    delimiter: delimiterOf(`${head}`),
    record_delimiter: ['\r\n', '\n', '\r'],
    relax_column_count: true,
    max_record_size: MAX_LINE_BYTES,
    // Taken here: a stream of them costs more. And csv-parse counts a CRLF within quotes as two lines.
    on_record(cells: string[]) {
      const isSeparator = line === start + 1 && /^sep=/i.test(cells[0] ?? '');
      if (!isSeparator && cells.some((cell) => cell.trim() !== '')) rows.push({ line, cells });
      for (const cell of cells) if (/[\r\n]/.test(cell)) line += cell.split(/\r\n|\n|\r/).length - 1;
      line++;
      mostCells = Math.max(mostCells, cells.length);
      return null;
    },
  }).on('error', () => {});
  const decoder = new TextDecoder('utf-8', { fatal: true });
  for (let endsWithLineBreak = false; ; part = await parts.next()) {
    const bytes = part.value || undefined;
    const failure = await new Promise<Error | null | undefined>((resolve) => {
      const done = (error?: Error | null) => resolve(error);
      if (bytes) parser.write(bytes, done);
      else parser.end(done);
    });
    let fault = failure && faultAt(rows.length, REASONS[codeOf(failure)] ?? WRONG_QUOTE);
    try {
      decoder.decode(bytes, { stream: !part.done });
    } catch {
      const spoiled = rows.findIndex(({ cells }) => cells.some((cell) => cell.includes('\ufffd')));
      fault = faultAt(spoiled < 0 ? rows.length : spoiled, NOT_UTF8);
    }
    const isShort = (rows.at(-1)?.cells.length ?? mostCells) < mostCells;
    if (part.done && isShort && !endsWithLineBreak) fault ??= faultAt(rows.length - 1, CUT_OFF);
    yield rows.splice(0);
    if (fault) throw fault;
    if (part.done) return;
    if (bytes) endsWithLineBreak = /[\r\n]$/.test(bytes.toString('latin1', bytes.length - 1));
  }
}

/** Yields the chunks, the first of them with the whole first line that is not blank. */
async function* withWholeFirstLine(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void> {
  let head: Buffer | undefined = Buffer.alloc(0);
  for await (const chunk of chunks) {
    const bytes: Buffer = head ? Buffer.concat([head, chunk]) : chunk;
    const isWhole: boolean = !head || bytes.length > MAX_LINE_BYTES || /\S.*[\r\n]/.test(`${bytes}`);
    head = isWhole ? undefined : bytes;
    if (isWhole) yield bytes;
  }
  if (head) yield head;
}

/** Returns the delimiter that Excel's line `sep=;` names, or else that of the first line: no name of a column has any of them. */
function delimiterOf(head: string): string {
  const [first = ''] = head.trimStart().split(/[\r\n]/);
  const [, named] = /^"?sep=(.)/i.exec(first) ?? [];
  const count = (delimiter: string) => first.split(delimiter).length;
  return named ?? [',', ';', '\t'].reduce((most, delimiter) => (count(delimiter) > count(most) ? delimiter : most));
}
