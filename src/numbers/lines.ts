/** The lines of an input, and what is wrong with them. */
import type { Readable } from 'node:stream';

/** In bytes: room for any number that the contract allows, even with a thousand entries and every character escaped. */
export const MAX_LINE_BYTES = 4 * 1024 * 1024;

/** Says everything that is wrong with a line, for whoever wrote it. */
export class LineError extends Error {}

/** Why a line can't be used. */
export interface LineFault {
  line: number;
  reason: string;
  /** The line that it contradicts, with which the sentence ends: "has another status than" on that line. */
  earlier?: number;
}

/** The most faults that are reported: if there are more, they usually have the same cause. */
export const MAX_FAULTS = 100;

/** The input has faults, so nothing was changed. It has the first of them, in the order of the lines. */
export class InputError extends Error {
  readonly faults: LineFault[];

  constructor(faults: LineFault[]) {
    const first = faults.toSorted((a, b) => a.line - b.line).slice(0, MAX_FAULTS);
    super(first.map((fault) => sentence(fault)).join('\n'));
    this.faults = first;
  }
}

/** A fault in words; `place` names a line. */
export function sentence({ line, reason, earlier }: LineFault, place = (line: number) => `line ${line}`): string {
  return `${place(line)}: ${reason}${earlier ? ` on ${place(earlier)}` : ''}`;
}

const LINE_FEED = 0x0a;
const BYTE_ORDER_MARK = Buffer.from('\ufeff');
const BLANKS = [...Buffer.from(' \t\r')];

/** Whether a line is blank. */
export function isBlank(line: Buffer): boolean {
  return line.every((byte) => BLANKS.includes(byte));
}

/**
 * The lines of `input`, without line feeds; one that is too long is cut off after the limit. A byte order mark is removed at
 * the beginning of any line, since the input may be several files in a row.
 */
export async function* linesOf(input: Readable, onRead: (length: number) => void = () => {}): AsyncGenerator<Buffer> {
  let parts: Buffer[] = [];
  let length = 0;
  const add = (part: Buffer) => {
    if (length <= MAX_LINE_BYTES) parts.push(part);
    length += part.length;
  };
  const take = () => {
    const [part = Buffer.alloc(0)] = parts;
    const line = parts.length > 1 ? Buffer.concat(parts) : part;
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
