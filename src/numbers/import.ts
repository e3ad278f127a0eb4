/** Imports numbers from NDJSON: all lines or none, in one transaction, with one line in memory at a time. */
import type { Readable } from 'node:stream';
import type { Database } from '../database/connect.js';
import { applyStaged } from './changes.js';
import { readLine } from './line.js';
import { InputError } from './lines.js';
import { ANALYZED, contradictions, createTable, rowOf } from './stagedNumbers.js';
import { changeByLines } from './staging.js';

/** Said once, instead of a fault for each of its lines. */
const COMPRESSED = 'is compressed; an import takes it as gunzip --stdout FILE | branded-phone-numbers import -';

/** How far an import is: first the input is read, then its content is written. */
export interface Progress {
  bytes: number;
  lines: number;
  /** The fraction of the writing that is done, 0 to 1. */
  written: number;
}

/**
 * Imports the numbers of `input`, NDJSON with an item on each line as in answers. A number that exists is replaced,
 * together with its entries; what a line leaves out (`id` and times) stays as it was. Imports wait for each other.
 * @param options.onProgress is called now and then with what is done so far
 * @returns how many numbers and entries the input held
 * @throws {InputError} when lines are at fault; nothing has changed then, nor after any other error
 */
export async function importNumbers(
  database: Database,
  input: Readable,
  { onProgress = () => {} }: { onProgress?(progress: Progress): void } = {},
): Promise<{ numbers: number; carrierStatuses: number }> {
  const counts = { numbers: 0, carrierStatuses: 0 };
  const progress: Progress = { bytes: 0, lines: 0, written: 0 };
  const report = (change: Partial<Progress>) => onProgress({ ...Object.assign(progress, change) });
  await changeByLines(database, input, {
    createTable,
    analyzed: ANALYZED,
    rowOf(line, bytes) {
      progress.lines = line;
      if (line === 1 && bytes[0] === 0x1f && bytes[1] === 0x8b) throw new InputError([{ line, reason: COMPRESSED }]);
      const number = readLine(bytes);
      counts.numbers++;
      counts.carrierStatuses += number.carrierStatuses.length;
      return rowOf(line, number);
    },
    label: 'phoneNumber ',
    contradictions(sql) {
      report({});
      return contradictions(sql);
    },
    write: (sql) => applyStaged(sql, (written) => report({ written })),
    onRead: (length) => report({ bytes: progress.bytes + length }),
  });
  return counts;
}
