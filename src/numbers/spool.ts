/** Checked rows on this machine's disk until they are written: they outlast the connection that they were checked on. */
import { randomUUID } from 'node:crypto';
import { closeSync, openSync, readSync, unlinkSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { codeOf } from '../database/errors.js';
import { UserError } from '../userError.js';
import type { Row } from './steps.js';

/** Bytes that are read or written at once. */
const BLOCK_SIZE = 256 * 1024;
const LINE_FEED = 0x0a;

/**
 * A temporary file of rows, read in the order in which they were written, once all are. It has no name, so that nothing of
 * it is left however the command ends. Its calls block: a command has nothing else to do meanwhile.
 * @throws {UserError} if there is no place for it
 */
export class Spool {
  readonly #file: number;
  /** Rows that were added and not taken yet. */
  length = 0;
  #unwritten: string[] = [];
  #unwrittenLength = 0;
  #read = Buffer.alloc(0);
  #isAtEnd = false;
  #position = 0;

  constructor() {
    const path = join(tmpdir(), `branded-phone-numbers-${randomUUID()}`);
    this.#file = explained(() => openSync(path, 'wx+', 0o600));
    unlinkSync(path);
  }

  /** Adds a row, whose key has no tab, and whose JSON no line feed. */
  add({ key, json }: Row): void {
    const line = `${key}\t${json}\n`;
    this.length++;
    this.#unwritten.push(line);
    this.#unwrittenLength += line.length;
    if (this.#unwrittenLength > BLOCK_SIZE) this.#write();
  }

  /** Takes the next rows, at most `count`; none at the end. */
  take(count: number): Row[] {
    this.#write();
    const rows: Row[] = [];
    for (let line = this.#line(); line !== undefined; line = rows.length < count ? this.#line() : undefined) {
      const end = line.indexOf('\t');
      rows.push({ key: line.slice(0, end), json: line.slice(end + 1) });
    }
    this.length -= rows.length;
    return rows;
  }

  close(): void {
    closeSync(this.#file);
  }

  #write(): void {
    if (this.#unwritten.length === 0) return;
    const bytes = Buffer.from(this.#unwritten.join(''));
    for (let at = 0; at < bytes.length; ) at += explained(() => writeSync(this.#file, bytes, at));
    this.#unwritten = [];
    this.#unwrittenLength = 0;
  }

  #line(): string | undefined {
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

function explained<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw new UserError(
      `the temporary folder ${tmpdir()} can't hold what is to be written (${codeOf(error)}): name another in TMPDIR`,
      { cause: error },
    );
  }
}
