/**
 * Checks lines of text as a whole, before anything is written. They are copied into a temporary table, and checked against
 * each other and the database there, so that Node need not hold them. What they change is then kept in spools: the
 * connection is given back, and may break.
 */
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { PendingQuery } from 'postgres';
import type { Database } from '../database/connect.js';
import { openSession, type Transaction } from '../database/transaction.js';
import { InputError, isBlank, LineError, type LineFault, linesOf, MAX_FAULTS } from './lines.js';
import { Spool } from './spool.js';
import { type Row, runSteps, type Steps } from './steps.js';

/** Characters of rows that are sent to PostgreSQL in one write. */
const BLOCK_LENGTH = 64 * 1024;
/** Rows that are read at once from PostgreSQL. */
const ROWS_AT_ONCE = 500;

/** What the lines are, and what they change. */
interface Change {
  /** Creates the temporary table `staged`: a row for each line, with its `line` and `phone_number`. */
  createTable(sql: Transaction): Promise<unknown>;
  /** The columns whose statistics the planner needs. */
  analyzed: readonly string[];
  /** Returns the row of a line that is not blank, as COPY reads it. @throws {LineError} */
  rowOf(line: number, bytes: Buffer): string;
  /** What comes before a phone number in a message. */
  label: string;
  /** Finds the lines that contradict others or the database: the first `MAX_FAULTS` of each kind. */
  contradictions(sql: Transaction): Promise<LineFault[]>[];
  /** What is written, one after the other; numbers come last. */
  parts: Part[];
  /** How the command calls what it does to numbers, for a message: imported. */
  verb: string;
  /** What finishes it if it ends early, for a message. */
  remedy: string;
}

/** One kind of rows that a change writes. */
export interface Part extends Pick<Steps, 'lock' | 'write'> {
  /** Finds what differs, in the order in which it is to be written. */
  find(sql: Transaction): PendingQuery<Row[]>;
}

/** How far a change is: first the input is read, then what differs is written. */
export interface Progress {
  /** Bytes read. */
  bytes: number;
  /** Numbers written, and numbers to write: undefined until all lines are checked. */
  written: number;
  toWrite?: number;
}

export interface Options {
  /** Connections that write at once. */
  jobs?: number;
  /** Stops the command: at once while it reads, after the running steps while it writes. */
  signal?: AbortSignal | undefined;
  /** Is called now and then with what is done so far. */
  onProgress?(progress: Progress): void;
}

/** The connections that write at once if none are given: on two cores the fastest that does not slow down other programs. */
export const DEFAULT_JOBS = 2;

/** A command that ended while it wrote. What it has written stays. Its cause is why it ended. */
export class Unfinished extends Error {}

/**
 * Changes numbers by the lines of `input`: checks all of them, then writes in short transactions.
 * @throws {InputError} if lines have faults; nothing has changed then
 * @throws {Unfinished} for any error while it writes
 */
export async function changeByLines(
  database: Database,
  input: Readable,
  change: Change,
  { jobs = DEFAULT_JOBS, signal, onProgress = () => {} }: Options,
): Promise<void> {
  const progress: Progress = { bytes: 0, written: 0 };
  const report = (made: Partial<Progress>) => onProgress({ ...Object.assign(progress, made) });
  const parts = change.parts.map((part) => ({ ...part, spool: new Spool() }));
  try {
    const onRead = (length: number) => report({ bytes: progress.bytes + length });
    const total = await stage(database, input, change, parts, { signal, onRead });
    const toWrite = parts.at(-1)?.spool.length ?? 0;
    report({ toWrite });
    try {
      for (const { spool, ...steps } of parts) {
        const onWritten = (count: number) => report({ written: progress.written + count });
        const isLast = spool === parts.at(-1)?.spool;
        if (spool.length === 0) continue;
        await runSteps(
          database,
          { ...steps, take: (count) => spool.take(count), ...(isLast ? { onWritten } : {}) },
          { jobs, signal },
        );
      }
    } catch (cause) {
      const done = total - toWrite + progress.written;
      throw new Unfinished(`${change.verb} ${done} of ${total} numbers; ${change.remedy}`, { cause });
    }
  } finally {
    input.destroy();
    for (const { spool } of parts) spool.close();
  }
}

/** Stages and checks the lines, and fills the spools. @returns how many lines there are, without blank ones */
async function stage(
  database: Database,
  input: Readable,
  change: Change,
  parts: (Part & { spool: Spool })[],
  { signal, onRead }: { signal: AbortSignal | undefined; onRead(length: number): void },
): Promise<number> {
  const faults: LineFault[] = [];
  let count = 0;

  async function* rows(): AsyncGenerator<string> {
    let block = '';
    let line = 0;
    for await (const bytes of linesOf(input, onRead)) {
      line++;
      if (isBlank(bytes)) continue;
      count++;
      try {
        block += change.rowOf(line, bytes);
      } catch (error) {
        if (!(error instanceof LineError)) throw error;
        // The valid lines are staged anyway, because they may contradict each other.
        if (faults.push({ line, reason: error.message }) === MAX_FAULTS) break;
      }
      if (block.length < BLOCK_LENGTH) continue;
      yield block;
      block = '';
    }
    yield block;
  }

  const session = await openSession(database);
  const onAbort = () => {
    input.destroy();
    void session.close();
  };
  signal?.addEventListener('abort', onAbort);
  try {
    signal?.throwIfAborted();
    await session.transaction('READ COMMITTED', async (sql) => {
      // Sorting and hashing a large file in memory; the caches of temporary tables stay small.
      await sql`SET LOCAL work_mem = '128MB'`;
      await change.createTable(sql);
      await copy(sql, rows(), change.analyzed);
      const contradictions = [repeated(sql, change.label), ...change.contradictions(sql)];
      const found = [...faults, ...(await Promise.all(contradictions)).flat()];
      if (found.length > 0) throw new InputError(found);
      for (const { find, spool } of parts) {
        for await (const rows of find(sql).cursor(ROWS_AT_ONCE)) for (const row of rows) spool.add(row);
      }
    });
    return count;
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  } finally {
    signal?.removeEventListener('abort', onAbort);
    await session.close();
  }
}

/** Copies rows into the table, and updates its statistics. */
async function copy(sql: Transaction, rows: AsyncIterable<string>, analyzed: readonly string[]): Promise<void> {
  const stream = await sql`COPY staged FROM STDIN`.writable();
  await pipeline(rows, stream, { end: false }).catch((error) => {
    stream.destroy(error);
    throw error;
  });
  const finished = once(stream, 'finish');
  stream.end();
  // If a COPY fails at its very end, postgres.js reports nothing on its stream; but then the next statement fails.
  await Promise.all([finished, sql`ANALYZE staged (${sql([...analyzed])})`]);
}

function repeated(sql: Transaction, label: string): Promise<LineFault[]> {
  return sql`
    SELECT line, ${label}::text || phone_number || ' is already' AS reason, earlier
    FROM (
      SELECT line, phone_number, min(line) OVER (PARTITION BY phone_number) AS earlier
      FROM staged
      WHERE phone_number IN (SELECT phone_number FROM staged GROUP BY phone_number HAVING count(*) > 1)
    ) AS repeated
    WHERE line > earlier
    ORDER BY line LIMIT ${MAX_FAULTS}`;
}
