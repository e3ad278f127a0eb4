/** Rows in a temporary file. They take no memory, and outlive the connection that they were read on. */
import { randomUUID } from 'node:crypto';
import { closeSync, openSync, readSync, unlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { codeOf } from '../../database/errors.js';
import { UserError } from '../../userError.js';
import { type Row, workOf } from './rows.js';

/** Bytes per read or write. */
const BLOCK_SIZE = 256 * 1024;
const LINE_FEED = 0x0a;

/**
 * A queue of rows in a temporary file. All rows must be added before the first is taken. The file is unlinked at once,
 * so that even a killed command leaves nothing behind. Its calls block: a command has nothing else to do meanwhile.
 * @throws {UserError} if the file can't be created, or the disk is full
 */
export class Spool {
  readonly #file: number;
  /** The number of rows that were added. */
  length = 0;
  #unwritten: string[] = [];
  #unwrittenLength = 0;
  #read = Buffer.alloc(0);
  #isAtEnd = false;
  /** The next row, if it was read but not taken. */
  #next: Row | undefined;
  #position = 0;

  constructor() {
    const path = join(tmpdir(), `branded-phone-numbers-${randomUUID()}`);
    this.#file = withAdvice(() => openSync(path, 'wx+', 0o600));
    unlinkSync(path);
  }

  /** Adds a row, which must not contain a line feed. */
  add(row: Row): void {
    const line = `${row}\n`;
    this.length++;
    this.#unwritten.push(line);
    this.#unwrittenLength += line.length;
    if (this.#unwrittenLength > BLOCK_SIZE) this.#write();
  }

  /** Removes and returns the next rows, of at most `work` together but at least one; none at the end. */
  take(work: number): Row[] {
    this.#write();
    const rows: Row[] = [];
    for (let left = work; ; ) {
      this.#next ??= this.#readLine();
      if (this.#next === undefined) break;
      left -= workOf(this.#next);
      if (left < 0 && rows.length > 0) break;
      rows.push(this.#next);
      this.#next = undefined;
    }
    return rows;
  }

  close(): void {
    closeSync(this.#file);
  }

  #write(): void {
    if (this.#unwritten.length === 0) return;
    const bytes = Buffer.from(this.#unwritten.join(''));
    withAdvice(() => writeFileSync(this.#file, bytes));
    this.#unwritten = [];
    this.#unwrittenLength = 0;
  }

  #readLine(): string | undefined {
    for (let end = this.#read.indexOf(LINE_FEED); ; end = this.#read.indexOf(LINE_FEED)) {
      if (end >= 0) {
        const line = this.#read.toString('utf8', 0, end);
        this.#read = this.#read.subarray(end + 1);
        return line;
      }
      if (this.#isAtEnd) return undefined;
      const block = Buffer.alloc(BLOCK_SIZE);
      const length = readSync(this.#file, block, 0, BLOCK_SIZE, this.#position);
      this.#position += length;
      this.#isAtEnd = length === 0;
      this.#read = Buffer.concat([this.#read, block.subarray(0, length)]);
    }
  }
}

/** Runs `work`. @throws {UserError} that tells how to choose another temporary folder */
function withAdvice<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw new UserError(
      `could not write to the temporary folder ${tmpdir()} (${codeOf(error)}): set TMPDIR to another folder`,
      { cause: error },
    );
  }
}
