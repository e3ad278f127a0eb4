/** Imports numbers from NDJSON: all lines or none, in one transaction, holding no more than a line in memory. */
import type { Readable } from 'node:stream';
import postgres, { type TransactionSql } from 'postgres';
import type { Database } from './database.js';
import { applyStaged } from './importApply.js';
import { LineError, LONGEST_LINE, readLine } from './importLine.js';
import { lockOutWriters } from './importLocks.js';
import { contradictions, copyStaged, createStaging, rowOf, takenIds } from './importStaging.js';

/** A line that can't be imported, and why. */
export interface LineFault {
  line: number;
  reason: string;
}

/** The input has faults, so nothing was imported. Its message is a line of text for each of them. */
export class ImportError extends Error {
  readonly faults: LineFault[];

  constructor(faults: LineFault[]) {
    super(faults.map(({ line, reason }) => `line ${line}: ${reason}`).join('\n'));
    this.faults = faults;
  }
}

/** The lines that one ImportError names; whoever made more faults than this made them all the same way. */
const MOST_FAULTS = 100;
/** Enough rows for one write to PostgreSQL to be worth its while. */
const BLOCK_LENGTH = 64 * 1024;

/**
 * Imports the numbers of `input`, NDJSON with an item as in the answers on each line. A number that exists is replaced,
 * together with its entries; what a line leaves out (`id` and times) stays as it was. Imports wait for each other.
 * @param options.onProgress is told now and then what has been read so far
 * @returns how many numbers and entries the input held
 * @throws ImportError when lines are at fault; nothing has changed then, nor after any other error
 */
export async function importNumbers(
  database: Database,
  input: Readable,
  { onProgress = () => {} }: { onProgress?(progress: { bytes: number; lines: number }): void } = {},
): Promise<{ numbers: number; carrierStatuses: number }> {
  const counts = { numbers: 0, carrierStatuses: 0 };
  const faults: LineFault[] = [];

  const progress = { bytes: 0, lines: 0 };
  const onRead = (length: number) => {
    progress.bytes += length;
    onProgress({ ...progress });
  };
  async function* rows(): AsyncGenerator<string> {
    let block = '';
    for await (const bytes of linesOf(input, onRead)) {
      progress.lines++;
      try {
        const number = readLine(bytes);
        if (!number) continue;
        counts.numbers++;
        counts.carrierStatuses += number.carrierStatuses.length;
        block += rowOf(progress.lines, number);
      } catch (error) {
        if (!(error instanceof LineError)) throw error;
        // The good lines are staged all the same, because they may contradict each other.
        if (faults.push({ line: progress.lines, reason: error.message }) === MOST_FAULTS) break;
      }
      if (block.length < BLOCK_LENGTH) continue;
      yield block;
      block = '';
    }
    yield block;
  }

  try {
    await inTransaction(database, async (sql) => {
      await createStaging(sql);
      await copyStaged(sql, rows());
      await lockOutWriters(sql);
      const found = merged(faults, await contradictions(sql, MOST_FAULTS), await takenIds(sql, MOST_FAULTS));
      if (found.length > 0) throw new ImportError(found);
      await applyStaged(sql);
    });
  } finally {
    input.destroy();
  }
  return counts;
}

/**
 * Does `work` in one transaction, on a connection of its own. When it fails, the connection is closed, which undoes all:
 * postgres.js would send a ROLLBACK even where the connection is what failed, and throw where nobody can catch.
 */
async function inTransaction(database: Database, work: (sql: TransactionSql) => Promise<void>): Promise<void> {
  const client = postgres({ ...(database.$client.options as object), max: 1, idle_timeout: 0, max_lifetime: null });
  try {
    await new Promise<void>((resolve, reject) => {
      const never = new Promise<void>(() => {});
      const guarded = (sql: TransactionSql) =>
        work(sql).catch((error) => {
          reject(error);
          return never;
        });
      client.begin(guarded).then(() => resolve(), reject);
    });
  } finally {
    await client.end({ timeout: 0 });
  }
}

/** The first of the faults, in the order of the lines, one for each line. */
function merged(...lists: LineFault[][]): LineFault[] {
  const byLine = new Map<number, string>();
  for (const { line, reason } of lists.flat()) {
    const before = byLine.get(line);
    byLine.set(line, before ? `${before}; ${reason}` : reason);
  }
  const faults = [...byLine].map(([line, reason]) => ({ line, reason }));
  return faults.sort((a, b) => a.line - b.line).slice(0, MOST_FAULTS);
}

const LINE_FEED = 0x0a;
const BYTE_ORDER_MARK = Buffer.of(0xef, 0xbb, 0xbf);

/** The lines of `input`, without line feeds and byte order mark; one that is too long is cut off behind the limit. */
async function* linesOf(input: Readable, onRead: (length: number) => void): AsyncGenerator<Buffer> {
  let parts: Buffer[] = [];
  let length = 0;
  let isFirst = true;
  const add = (part: Buffer) => {
    if (length <= LONGEST_LINE) parts.push(part);
    length += part.length;
  };
  const take = () => {
    const [part = Buffer.alloc(0)] = parts;
    const line = parts.length > 1 ? Buffer.concat(parts) : part;
    const mark =
      isFirst && line.subarray(0, BYTE_ORDER_MARK.length).equals(BYTE_ORDER_MARK) ? BYTE_ORDER_MARK.length : 0;
    [parts, length, isFirst] = [[], 0, false];
    return line.subarray(mark);
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
