/** The lines of an input, and their faults. */
import { cut, escapeHidden } from '../../messages/shown.js';

/** The longest line in bytes: fits any number of the contract, with a thousand entries and all characters escaped. */
export const MAX_LINE_BYTES = 4 * 1024 * 1024;
export const TOO_LONG = `is longer than ${MAX_LINE_BYTES / 1024 / 1024} MiB`;

/** A place is one number: that of its file times this, plus the line. No file has as many lines. */
export const LINES_PER_FILE = 1e12;
export const fileOf = (line: number) => Math.floor(line / LINES_PER_FILE);

const MAX_REASONS = 5;

export class LineError extends Error {
  readonly reasons: readonly string[];

  constructor(...reasons: string[]) {
    const more = reasons.length - MAX_REASONS;
    super(reasons.slice(0, MAX_REASONS).join('; ') + (more > 0 ? `; and ${more} more` : ''));
    this.reasons = reasons;
  }
}

export interface LineFault {
  /** The place of the line: its number in its file, plus `LINES_PER_FILE` for each file before that. */
  line: number;
  reason: string;
  /** What the line has as its phone number, unless the reason says it. */
  phoneNumber?: string | undefined;
  /** The earlier line that it contradicts. */
  earlier?: number;
}

/** What was read from a line, or from rows that belong together: its columns in the text format of COPY, or its faults. */
export type Given = { line: number; row: string } | { faults: LineFault[] };

/** The most faults that are reported; further ones usually have the same cause. */
export const MAX_FAULTS = 100;

/** The input has faults, so nothing was changed. Holds the first `MAX_FAULTS`, in order of their lines. */
export class InputError extends Error {
  readonly faults: LineFault[];

  constructor(faults: LineFault[]) {
    const first = faults.toSorted((a, b) => a.line - b.line).slice(0, MAX_FAULTS);
    super(first.map((fault) => sentence(fault)).join('\n'));
    this.faults = first;
  }
}

/** Returns a fault as a sentence. `place` returns what to call a line. */
export function sentence(
  { line, phoneNumber, reason, earlier }: LineFault,
  place = (line: number) => `line ${line}`,
): string {
  const name = phoneNumber ? `${cut(escapeHidden(phoneNumber))}: ` : '';
  return `${place(line)}: ${name}${reason}${earlier ? `; see ${place(earlier)}` : ''}`;
}

const LINE_FEED = 0x0a;
const BYTE_ORDER_MARK = Buffer.from('\ufeff');
const BLANKS = [...Buffer.from(' \t\r')];

/** Returns whether a line has only spaces, tabs and carriage returns. One that is too long may have been cut off, so it is not. */
function isBlank(line: Buffer): boolean {
  return line.length <= MAX_LINE_BYTES && line.every((byte) => BLANKS.includes(byte));
}

interface LineReader {
  /** Returns the columns of a line that is not blank, in the text format of COPY. @throws {LineError} */
  rowOf(line: Buffer): string;
  /** Returns what is wrong with a file if its first line shows that it has other content: reported once, not for each line. */
  formFault(first: Buffer): string | undefined;
  /** Returns the phone number of a faulty line, unless its reason says it. */
  phoneNumberIn?(line: Buffer): string | undefined;
}

/**
 * Reads the lines of a file that are not blank, and yields those that were read at once together: a yield of each would cost a
 * twentieth of an import's CPU time.
 * @param start is the place before its first line
 * @throws {InputError} if it has other content
 */
export async function* readLines(
  chunks: AsyncIterable<Buffer | string>,
  start: number,
  { rowOf, formFault, phoneNumberIn }: LineReader,
): AsyncGenerator<Given[]> {
  let line = start;
  let isFirst = true;
  for await (const lines of linesOf(chunks)) {
    const given: Given[] = [];
    for (const bytes of lines) {
      line++;
      if (isBlank(bytes)) continue;
      const reason = isFirst && formFault(bytes);
      if (reason) throw new InputError([{ line, reason }]);
      isFirst = false;
      try {
        given.push({ line, row: rowOf(bytes) });
      } catch (error) {
        if (!(error instanceof LineError)) throw error;
        given.push({ faults: [{ line, reason: error.message, phoneNumber: phoneNumberIn?.(bytes) }] });
      }
    }
    yield given;
  }
}

/**
 * Yields the lines of each of the `chunks`, without line feeds. Cuts off a line somewhere beyond `MAX_LINE_BYTES`. Removes a byte
 * order mark from the beginning of any line, since standard input may be several files.
 */
async function* linesOf(chunks: AsyncIterable<Buffer | string>): AsyncGenerator<Buffer[]> {
  let parts: Buffer[] = [];
  let length = 0;
  const add = (part: Buffer) => {
    if (length <= MAX_LINE_BYTES) parts.push(part);
    length += part.length;
  };
  const take = () => {
    const line = Buffer.concat(parts);
    [parts, length] = [[], 0];
    return line.subarray(line.subarray(0, BYTE_ORDER_MARK.length).equals(BYTE_ORDER_MARK) ? BYTE_ORDER_MARK.length : 0);
  };
  for await (const chunk of chunks) {
    const bytes: Buffer = typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
    const lines: Buffer[] = [];
    let start = 0;
    for (let end = bytes.indexOf(LINE_FEED); end >= 0; end = bytes.indexOf(LINE_FEED, start)) {
      add(bytes.subarray(start, end));
      lines.push(take());
      start = end + 1;
    }
    if (start < bytes.length) add(bytes.subarray(start));
    yield lines;
  }
  if (length > 0) yield [take()];
}
