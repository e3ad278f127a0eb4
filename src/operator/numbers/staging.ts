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
import { type Given, InputError, LINES_PER_FILE, type LineFault, MAX_FAULTS } from './lines.js';
import { type Columns, type Find, listOf, type Row } from './rows.js';
import { Spool } from './spool.js';
import { runSteps, type Options as StepOptions, type Steps } from './steps.js';

/** Characters per write to PostgreSQL. */
const BLOCK_LENGTH = 64 * 1024;

interface Change {
  /** Reads a file, some of its lines at a time. `start` is the place before its first line. */
  read(file: Readable, start: number): AsyncIterable<Given[]>;
  /** The columns of the temporary table `staged`, which has a row for each line: its number, `line`, then these. */
  columns: Columns & { phone_number: string };
  analyzed: readonly string[];
  /** Returns the fault of a repeated phone number, with a reason that fits the format of the input. */
  repeated(fault: LineFault): LineFault;
  /** Finds lines that contradict other lines or the database, at most `MAX_FAULTS` of each kind. */
  contradictions(sql: Transaction): Promise<LineFault[]>[];
  /** The parts to write, in this order. */
  parts: Part[];
  /** The part that writes the numbers of the input. Later parts concern other numbers. */
  numbers: Part;
  /** The past tense of what the command does, for messages: imported. */
  verb: string;
  /** The advice for a change that ended early. */
  remedy: string;
}

/** The rows of one kind that a change writes. */
export interface Part extends Omit<Steps, 'onWritten'> {
  /** What a row is, for messages, and the past tense of what is done with it, unless that is the verb of the change. */
  noun: string;
  verb?: string;
  /** Selects the rows that differ from the database, in the order of writing. */
  find: Find;
  /** Refuses to write so many rows. @throws {UserError} */
  rejectIfTooMany?(sql: Transaction, rows: number): Promise<void>;
}

type Running = Part & { spool: Spool; written: number; changed: number };

/** How many numbers a change has written or deleted, and how many it will in all. Known once its input is checked. */
export interface Progress {
  written: number;
  toWrite: number;
}

/** `signal` also ends the change while it reads, at once. */
export interface Options extends StepOptions {
  /** Called after all lines are checked, and after each step written. */
  onProgress?(progress: Progress): void;
}

/**
 * Changes numbers by the lines of files: checks all lines, then writes in short transactions.
 * @returns how many numbers the files have, and how many rows of each part had to be changed
 * @throws {InputError} if lines have faults; then nothing has changed
 * @throws {Unfinished} for any error while writing
 */
export async function changeByLines(
  url: string,
  files: readonly Readable[],
  change: Change,
  { jobs = DEFAULT_JOBS, signal, onProgress = () => {} }: Options,
): Promise<{ lines: number; changed: number[] }> {
  const parts = change.parts.map((part) => ({ ...part, spool: new Spool(), written: 0, changed: 0 }));
  // Earlier parts are no numbers.
  const counted = parts.slice(change.parts.indexOf(change.numbers));
  const [numbers] = counted as [Running];
  const total = (count: (part: Running) => number) => counted.reduce((sum, part) => sum + count(part), 0);
  try {
    const lines = await stage(url, files, change, parts, signal);
    const toWrite = total(({ spool }) => spool.length);
    onProgress({ written: 0, toWrite });
    try {
      for (const part of parts) {
        const onWritten = (rows: Row[], changed: string[]) => {
          part.written += rows.length;
          part.changed += changed.length;
          onProgress({ written: total(({ written }) => written), toWrite });
        };
        if (part.spool.length > 0) jobs = await runSteps(url, part.spool, { ...part, onWritten }, { jobs, signal });
      }
    } catch (cause) {
      const unwritten = parts
        .filter((part) => part !== numbers && part.written < part.spool.length)
        .map(({ verb = '', written, spool, noun }) => ` and ${verb}${written} of ${countOf(spool.length, noun)}`);
      const written = lines - numbers.spool.length + numbers.written;
      const done = `${written} of ${countOf(lines, 'number')}${unwritten.join('')}`;
      throw new Unfinished(`${change.verb} ${done}; ${change.remedy}`, { cause });
    }
    return { lines, changed: parts.map(({ changed }) => changed) };
  } finally {
    for (const file of files) file.destroy();
    for (const { spool } of parts) spool.close();
  }
}

/** Stages and checks the lines, and fills the spools. @returns how many numbers the files have */
async function stage(
  url: string,
  files: readonly Readable[],
  change: Change,
  parts: (Part & { spool: Spool })[],
  signal: AbortSignal | undefined,
): Promise<number> {
  const faults: LineFault[] = [];
  let count = 0;

  async function* given(): AsyncGenerator<Given[]> {
    try {
      for (const [i, file] of files.entries()) yield* change.read(file, i * LINES_PER_FILE);
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
      yield [{ faults: error.faults }];
    }
  }

  async function* rows(): AsyncGenerator<string> {
    let block = '';
    for await (const numbers of given()) {
      count += numbers.length;
      for (const number of numbers) {
        // Valid lines are staged anyway, to report contradictions between them, too.
        if ('row' in number) block += `${number.line}\t${number.row}\n`;
        else faults.push(...number.faults);
      }
      if (faults.length >= MAX_FAULTS) break;
      if (block.length < BLOCK_LENGTH) continue;
      yield block;
      block = '';
    }
    yield block;
  }

  const work = async (sql: Transaction) => {
    // To sort and hash large inputs in memory. Nothing stays that a commit would have to wait for.
    await sql.unsafe(`SET LOCAL work_mem = '128MB'; SET LOCAL synchronous_commit = off`);
    const columns = listOf(sql, change.columns, (name, type) => `${name} ${type}`);
    await sql`CREATE TEMPORARY TABLE staged (line float8, ${columns}) ON COMMIT DROP`;
    await copy(sql, rows(), change.analyzed);
    const [repeated = [], ...contradictions] = await Promise.all([repeatedLines(sql), ...change.contradictions(sql)]);
    const found = [...faults, ...repeated.map(change.repeated), ...contradictions.flat()];
    if (found.length > 0) throw new InputError(found);
    for (const { find, rejectIfTooMany, spool } of parts) {
      await spool.fill(find(sql));
      await rejectIfTooMany?.(sql, spool.length);
    }
  };
  signal?.throwIfAborted();
  const connection = new Connection(url);
  const stop = () => {
    for (const file of files) file.destroy();
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

function repeatedLines(sql: Transaction): Promise<LineFault[]> {
  return sql`
    SELECT line, phone_number AS "phoneNumber", 'phoneNumber is given twice' AS reason, earlier
    FROM (
      SELECT line, phone_number, min(line) OVER (PARTITION BY phone_number) AS earlier
      FROM staged
      WHERE phone_number IN (SELECT phone_number FROM staged GROUP BY phone_number HAVING count(*) > 1)
    ) AS repeated
    WHERE line > earlier
    ORDER BY line LIMIT ${MAX_FAULTS}`;
}
