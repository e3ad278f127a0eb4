/** Rows in a temporary file. They take no memory, and outlive the connection that they were read on. */
import { randomUUID } from 'node:crypto';
import { closeSync, openSync, readSync, unlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { StringDecoder } from 'node:string_decoder';
import { codeOf } from '../../database/errors.js';
import { UserError } from '../../userError.js';
import { type Find, type Row, workOf } from './rows.js';

/** Bytes per read, and characters per write. */
const BLOCK_SIZE = 256 * 1024;
const ROWS_AT_ONCE = 500;

/**
 * A queue of rows in a temporary file. All rows must be added before the first is taken. The file is unlinked at once,
 * so that even a killed command leaves nothing behind. Its calls block: a command has nothing else to do meanwhile.
 * @throws {UserError} if the file can't be created, or the disk is full
 */
export class Spool {
  readonly #file: number;
  /** The number of rows that were added. */
  length = 0;
  #unwritten = '';
  readonly #rows: Iterator<Row>;
  /** The next row, if it was read but not taken. */
  #next: Row | undefined;

  constructor() {
    const path = join(tmpdir(), `branded-phone-numbers-${randomUUID()}`);
    this.#file = withAdvice(() => openSync(path, 'wx+', 0o600));
    unlinkSync(path);
    this.#rows = linesOf(this.#file);
  }

  /** Adds a row, which must not contain a line feed. */
  add(row: Row): void {
    this.length++;
    this.#unwritten += `${row}\n`;
    if (this.#unwritten.length > BLOCK_SIZE) this.#write();
  }

  async fill(query: ReturnType<Find>): Promise<void> {
    for await (const rows of query.cursor(ROWS_AT_ONCE)) for (const { row } of rows) this.add(row);
  }

  /** Whether no row is left to take. */
  get isEmpty(): boolean {
    return this.#peek() === undefined;
  }

  /** Removes and returns the next rows, of at most `work` together but at least one; none at the end. */
  take(work: number): Row[] {
    const rows: Row[] = [];
    for (let left = work; ; ) {
      const next = this.#peek();
      if (next === undefined) return rows;
      left -= workOf(next);
      if (left < 0 && rows.length > 0) return rows;
      rows.push(next);
      this.#next = undefined;
    }
  }

  close(): void {
    closeSync(this.#file);
  }

  #peek(): Row | undefined {
    if (this.#unwritten) this.#write();
    this.#next ??= this.#rows.next().value;
    return this.#next;
  }

  #write(): void {
    withAdvice(() => writeFileSync(this.#file, this.#unwritten));
    this.#unwritten = '';
  }
}

/** Yields the lines of an open file from its beginning. Each must end with a line feed. */
function* linesOf(file: number): Generator<string, undefined> {
  const block = Buffer.alloc(BLOCK_SIZE);
  const decoder = new StringDecoder();
  let rest = '';
  for (let position = 0, length = 0; ; position += length) {
    length = readSync(file, block, 0, BLOCK_SIZE, position);
    if (length === 0) return;
    const lines = (rest + decoder.write(block.subarray(0, length))).split('\n');
    rest = lines.pop() ?? '';
    yield* lines;
  }
}

/** Runs `work`. @throws {UserError} that tells how to choose another temporary folder */
function withAdvice<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    const problem = `could not write to the temporary folder ${tmpdir()} (${codeOf(error)})`;
    throw new UserError(`${problem}: set TMPDIR to another folder`, { cause: error });
  }
}
