/** Imports numbers from NDJSON: checked as a whole, then written in short transactions, with few lines in memory. */
import type { Readable } from 'node:stream';
import type { Database } from '../database/connect.js';
import { changedNumbers, changedProfiles } from './changes.js';
import { otherFormat } from './format.js';
import { readLine } from './line.js';
import { InputError } from './lines.js';
import { ANALYZED, contradictions, createTable, rowOf } from './stagedNumbers.js';
import { changeByLines, type Options } from './staging.js';

/**
 * Imports the numbers of `input`, NDJSON with an item on each line as in responses. A number that exists is replaced,
 * together with its entries; what a line leaves out (`id` and times) stays as it was. Each number changes as a whole, but
 * numbers are written in many transactions.
 * @returns how many numbers and entries the input held
 * @throws {InputError} if lines have faults; nothing has changed then
 * @throws {Unfinished} for any error while it writes; the same import again finishes it
 */
export async function importNumbers(
  database: Database,
  input: Readable,
  options: Options = {},
): Promise<{ numbers: number; carrierStatuses: number }> {
  const counts = { numbers: 0, carrierStatuses: 0 };
  let isFirst = true;
  const change = {
    createTable,
    analyzed: ANALYZED,
    rowOf(line: number, bytes: Buffer) {
      // Reported once, instead of a fault for each line.
      const reason = isFirst ? otherFormat(bytes) : undefined;
      isFirst = false;
      if (reason) throw new InputError([{ line, reason }]);
      const number = readLine(bytes);
      counts.numbers++;
      counts.carrierStatuses += number.carrierStatuses.length;
      return rowOf(line, number);
    },
    label: 'phoneNumber ',
    contradictions,
    parts: [changedProfiles, changedNumbers],
    verb: 'imported',
    remedy: 'run the same import again to finish it',
  };
  await changeByLines(database, input, change, options);
  return counts;
}
