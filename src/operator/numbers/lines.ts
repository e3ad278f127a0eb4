/** The lines of an input, and their faults. */
import type { Readable } from 'node:stream';

/**
 * The longest line in bytes: fits any number that the contract allows, with a thousand entries and all characters
 * escaped.
 */
export const MAX_LINE_BYTES = 4 * 1024 * 1024;

/** Lists all faults of one line in its message. */
export class LineError extends Error {}

/** A reason to reject a line. */
export interface LineFault {
  line: number;
  reason: string;
  /** The earlier line that it contradicts. */
  earlier?: number;
}

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
export function sentence({ line, reason, earlier }: LineFault, place = (line: number) => `line ${line}`): string {
  return `${place(line)}: ${reason}${earlier ? `; see ${place(earlier)}` : ''}`;
}

export const LINE_FEED = 0x0a;
const BYTE_ORDER_MARK = Buffer.from('\ufeff');
const BLANKS = [...Buffer.from(' \t\r')];

/** Returns whether a line has only spaces, tabs and carriage returns. One that is too long may have been cut off, so it is not. */
export function isBlank(line: Buffer): boolean {
  return line.length <= MAX_LINE_BYTES && line.every((byte) => BLANKS.includes(byte));
}

/**
 * Yields the lines of `input`, without line feeds. Cuts off a line somewhere beyond `MAX_LINE_BYTES`. Removes a byte
 * order mark from the beginning of any line, since the input may be several files.
 */
export async function* linesOf(input: Readable, onRead: (length: number) => void = () => {}): AsyncGenerator<Buffer> {
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
  for await (const chunk of input) {
    const bytes: Buffer = typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
    onRead(bytes.length);
    let start = 0;
    for (let end = bytes.indexOf(LINE_FEED); end >= 0; end = bytes.indexOf(LINE_FEED, start)) {
      add(bytes.subarray(start, end));
      yield take();
      start = end + 1;
    }
    if (start < bytes.length) add(bytes.subarray(start));
  }
  if (length > 0) yield take();
}
