/**
 * Changes numbers by lines of text, by all of them or none. The lines wait in a temporary table of the transaction, filled
 * by COPY, until all are known to be valid. They are checked against each other there, so that Node need not hold them.
 */
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { TransactionSql } from 'postgres';
import type { Database } from '../database/connect.js';
import { inTransaction } from '../database/transaction.js';
import { InputError, isBlank, LineError, type LineFault, linesOf, MAX_FAULTS } from './lines.js';
import { lockOutWriters } from './locks.js';

/** Characters of rows that are sent to PostgreSQL in one write. */
const BLOCK_LENGTH = 64 * 1024;

/** What the lines are, and what they change. */
interface Change<T> {
  /** Creates the temporary table `staged`: a row for each line, with its `line` and `phone_number`. */
  createTable(sql: TransactionSql): Promise<unknown>;
  /** The columns whose statistics the planner needs. */
  analyzed: readonly string[];
  /** The row of a line that is not blank, as COPY reads it. @throws {LineError} */
  rowOf(line: number, bytes: Buffer): string;
  /** What comes before a phone number in a message. */
  label: string;
  /** Finds the lines that contradict others or the database: the first `MAX_FAULTS` of each kind. */
  contradictions(sql: TransactionSql): Promise<LineFault[]>[];
  /** Changes the numbers, once all lines are valid and nobody else writes. */
  write(sql: TransactionSql): Promise<T>;
  /** Is told the length of each part of the input. */
  onRead?: (length: number) => void;
}

/**
 * Makes a change by the lines of `input`.
 * @returns what its `write` does
 * @throws {InputError} when lines are at fault; nothing has changed then, nor after any other error
 */
export async function changeByLines<T>(database: Database, input: Readable, change: Change<T>): Promise<T> {
  const faults: LineFault[] = [];

  async function* rows(): AsyncGenerator<string> {
    let block = '';
    let line = 0;
    for await (const bytes of linesOf(input, change.onRead)) {
      line++;
      if (isBlank(bytes)) continue;
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

  try {
    // Under the lock, each statement has to see what others committed before it.
    return await inTransaction(database, 'READ COMMITTED', async (sql) => {
      await change.createTable(sql);
      await copy(sql, rows(), change.analyzed);
      await lockOutWriters(database, sql);
      // Or lines might be compared with all numbers one by one: of a table that was analyzed before what it holds was
      // committed, the planner believes that there is one row.
      await sql`SET LOCAL enable_nestloop = off`;
      const contradictions = [repeated(sql, change.label), ...change.contradictions(sql)];
      const found = [...faults, ...(await Promise.all(contradictions)).flat()];
      if (found.length > 0) throw new InputError(found);
      return change.write(sql);
    });
  } finally {
    input.destroy();
  }
}

/** Copies rows into the table, and updates its statistics. */
async function copy(sql: TransactionSql, rows: AsyncIterable<string>, analyzed: readonly string[]): Promise<void> {
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

function repeated(sql: TransactionSql, label: string): Promise<LineFault[]> {
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
