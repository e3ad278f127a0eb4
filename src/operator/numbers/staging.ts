/**
 * Changes numbers by lines of text. Checks all lines before writing any: copies them into a temporary table, which
 * bounds Node's memory, and checks them there against each other and the database. Then keeps the rows to write in
 * spools, so that writing does not depend on the connection of the temporary table.
 */
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { Connection, type Transaction } from '../../database/connection.js';
import { countOf } from '../../messages/count.js';
import { Unfinished } from '../../userError.js';
import { DEFAULT_JOBS } from './jobs.js';
import { InputError, isBlank, LineError, type LineFault, linesOf, MAX_FAULTS } from './lines.js';
import { type Columns, type Find, listOf, type Row } from './rows.js';
import { Spool } from './spool.js';
import { runSteps, type Options as StepOptions, type Steps } from './steps.js';

/** Characters per write to PostgreSQL. */
const BLOCK_LENGTH = 64 * 1024;

/** How to read lines, check them and write their changes. */
interface Change {
  /** The columns of the temporary table `staged`, which has a row for each line: its number, `line`, then these. */
  columns: Columns & { phone_number: string };
  /** The columns to ANALYZE. */
  analyzed: readonly string[];
  /** Returns the columns of a line that is not blank, in the text format of COPY. @throws {LineError} */
  rowOf(bytes: Buffer): string;
  /** Returns what is wrong with an input if its first line shows that it has other content: reported once, not for each line. */
  formFault(first: Buffer): string | undefined;
  /** The text before a phone number in messages, if any. */
  label?: string;
  /** Finds lines that contradict other lines or the database, at most `MAX_FAULTS` of each kind. */
  contradictions(sql: Transaction): Promise<LineFault[]>[];
  /** The parts to write, in this order; the last one writes numbers. */
  parts: Part[];
  /** The past tense of what the command does, for messages: imported. */
  verb: string;
  /** The advice for a change that ended early. */
  remedy: string;
}

/** The rows of one kind that a change writes. */
export interface Part extends Omit<Steps, 'onWritten'> {
  /** What a row is, for messages. */
  noun: string;
  /** Selects the rows that differ from the database, in the order of writing. */
  find: Find;
}

/** The progress of a change, which first reads its input, then writes the differences. */
export interface Progress {
  /** Bytes read. */
  bytes: number;
  /** Numbers written. */
  written: number;
  /** Numbers to write in all; undefined until all lines are checked. */
  toWrite?: number;
}

/** `signal` also ends the change while it reads, at once. */
export interface Options extends StepOptions {
  /** Called after each chunk read and each step written. */
  onProgress?(progress: Progress): void;
}

/**
 * Changes numbers by the lines of `input`: checks all lines, then writes in short transactions.
 * @returns the number of lines that are not blank, and how many numbers had to be changed
 * @throws {InputError} if lines have faults; then nothing has changed
 * @throws {Unfinished} for any error while writing
 */
export async function changeByLines(
  url: string,
  input: Readable,
  change: Change,
  { jobs = DEFAULT_JOBS, signal, onProgress = () => {} }: Options,
): Promise<{ lines: number; changed: number }> {
  const progress: Progress = { bytes: 0, written: 0 };
  const report = (update: Partial<Progress>) => onProgress({ ...Object.assign(progress, update) });
  const parts = change.parts.map((part) => ({ ...part, spool: new Spool(), written: 0, changed: 0 }));
  const earlierParts = parts.slice(0, -1);
  const [numbers] = parts.slice(-1) as [(typeof parts)[number]];
  try {
    const onRead = (length: number) => report({ bytes: progress.bytes + length });
    const total = await stage(url, input, change, parts, { signal, onRead });
    const toWrite = numbers.spool.length;
    report({ toWrite });
    try {
      for (const part of parts) {
        const onWritten = (rows: Row[], changed: string[]) => {
          part.written += rows.length;
          part.changed += changed.length;
          report({ written: numbers.written });
        };
        if (part.spool.length > 0) jobs = await runSteps(url, part.spool, { ...part, onWritten }, { jobs, signal });
      }
    } catch (cause) {
      const unwritten = earlierParts
        .filter(({ written, spool }) => written < spool.length)
        .map(({ written, spool, noun }) => ` and ${written} of ${countOf(spool.length, noun)}`);
      const done = `${total - toWrite + numbers.written} of ${countOf(total, 'number')}${unwritten.join('')}`;
      throw new Unfinished(`${change.verb} ${done}; ${change.remedy}`, { cause });
    }
    return { lines: total, changed: numbers.changed };
  } finally {
    input.destroy();
    for (const { spool } of parts) spool.close();
  }
}

/** Stages and checks the lines, and fills the spools. @returns the number of lines that are not blank */
async function stage(
  url: string,
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
      const formFault = count++ === 0 && change.formFault(bytes);
      if (formFault) throw new InputError([{ line, reason: formFault }]);
      try {
        block += `${line}\t${change.rowOf(bytes)}\n`;
      } catch (error) {
        if (!(error instanceof LineError)) throw error;
        // Valid lines are staged anyway, to report contradictions between them, too.
        if (faults.push({ line, reason: error.message }) === MAX_FAULTS) break;
      }
      if (block.length < BLOCK_LENGTH) continue;
      yield block;
      block = '';
    }
    yield block;
  }

  const work = async (sql: Transaction) => {
    // To sort and hash large inputs in memory.
    await sql`SET LOCAL work_mem = '128MB'`;
    const columns = listOf(sql, change.columns, (name, type) => `${name} ${type}`);
    await sql`CREATE TEMPORARY TABLE staged (line integer, ${columns}) ON COMMIT DROP`;
    await copy(sql, rows(), change.analyzed);
    const contradictions = [repeated(sql, change.label), ...change.contradictions(sql)];
    const found = [...faults, ...(await Promise.all(contradictions)).flat()];
    if (found.length > 0) throw new InputError(found);
    for (const { find, spool } of parts) await spool.fill(find(sql));
  };
  signal?.throwIfAborted();
  const connection = new Connection(url);
  const stop = () => {
    input.destroy();
    void connection.close(0);
  };
  signal?.addEventListener('abort', stop);
  try {
    await connection.transaction('READ COMMITTED', work);
    return count;
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  } finally {
    signal?.removeEventListener('abort', stop);
    await connection.close(0);
  }
}

/** Copies rows into `staged`, and analyzes it. */
async function copy(sql: Transaction, rows: AsyncIterable<string>, analyzed: readonly string[]): Promise<void> {
  const stream = await sql`COPY staged FROM STDIN`.writable();
  await pipeline(rows, stream, { end: false }).catch((error) => {
    stream.destroy(error);
    throw error;
  });
  const finished = once(stream, 'finish');
  // Over TLS, writes are pending, and the stream ends only after them: until then, postgres.js accepts no statement.
  await new Promise((resolve) => stream.write('', resolve));
  stream.end();
  // If COPY fails at its end, postgres.js reports that not on the stream, but by the next statement.
  await Promise.all([finished, sql`ANALYZE staged (${sql([...analyzed])})`]);
}

/** Finds lines whose phone number an earlier line has. */
function repeated(sql: Transaction, label = ''): Promise<LineFault[]> {
  return sql`
    SELECT line, ${label}::text || phone_number || ' is given twice' AS reason, earlier
    FROM (
      SELECT line, phone_number, min(line) OVER (PARTITION BY phone_number) AS earlier
      FROM staged
      WHERE phone_number IN (SELECT phone_number FROM staged GROUP BY phone_number HAVING count(*) > 1)
    ) AS repeated
    WHERE line > earlier
    ORDER BY line LIMIT ${MAX_FAULTS}`;
}
