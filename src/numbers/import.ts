/** Imports numbers from NDJSON: all lines or none, in one transaction, holding no more than a line in memory. */
import type { Readable } from 'node:stream';
import type { Database } from '../database/connect.js';
import { inTransaction } from '../database/transaction.js';
import { applyStaged } from './changes.js';
import { hintOfFormat, LineError, readLine } from './line.js';
import { InputError, type LineFault, linesOf, MOST_FAULTS, mergedFaults } from './lines.js';
import { lockOutWriters } from './locks.js';
import { contradictions, copyRows, createStaging, rowOf, STAGED, takenIds } from './staging.js';

/** Characters of rows that are sent to PostgreSQL in one write. */
const BLOCK_LENGTH = 64 * 1024;

/** How far an import is: first the input is read, then what it says is written. */
export interface Progress {
  bytes: number;
  lines: number;
  /** The part of the writing that is done, 0 to 1. */
  written: number;
}

/**
 * Imports the numbers of `input`, NDJSON with an item as in the answers on each line. A number that exists is replaced,
 * together with its entries; what a line leaves out (`id` and times) stays as it was. Imports wait for each other.
 * @param options.onProgress is called now and then with what is done so far
 * @returns how many numbers and entries the input held
 * @throws InputError when lines are at fault; nothing has changed then, nor after any other error
 */
export async function importNumbers(
  database: Database,
  input: Readable,
  { onProgress = () => {} }: { onProgress?(progress: Progress): void } = {},
): Promise<{ numbers: number; carrierStatuses: number }> {
  const counts = { numbers: 0, carrierStatuses: 0 };
  const faults: LineFault[] = [];

  const progress: Progress = { bytes: 0, lines: 0, written: 0 };
  const onRead = (length: number) => {
    progress.bytes += length;
    onProgress({ ...progress });
  };
  async function* rows(): AsyncGenerator<string> {
    let block = '';
    for await (const bytes of linesOf(input, onRead)) {
      progress.lines++;
      const hint = counts.numbers + faults.length === 0 && hintOfFormat(bytes);
      if (hint) throw new InputError([{ line: progress.lines, reason: hint }]);
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
    // Under the lock, each statement has to see what others committed before it.
    await inTransaction(database, 'READ COMMITTED', async (sql) => {
      await createStaging(sql);
      await copyRows(sql, STAGED, rows());
      onProgress({ ...progress });
      await lockOutWriters(sql);
      const found = mergedFaults(faults, await contradictions(sql, MOST_FAULTS), await takenIds(sql, MOST_FAULTS));
      if (found.length > 0) throw new InputError(found);
      await applyStaged(sql, (written) => onProgress({ ...progress, written }));
    });
  } finally {
    input.destroy();
  }
  return counts;
}
