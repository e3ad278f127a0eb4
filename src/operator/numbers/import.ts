/** Imports numbers from NDJSON: checks all lines, then writes in short transactions, with few lines in memory. */
import type { Readable } from 'node:stream';
import { changedNumbers, changedProfiles } from './changes.js';
import { readLine } from './line.js';
import { COLUMNS, contradictions, rowOf } from './stagedNumbers.js';
import { changeByLines, type Options } from './staging.js';

const NOT_NDJSON =
  'is not a JSON object; the input must be NDJSON: uncompressed UTF-8 text, one JSON object per line. ' +
  "To convert a spreadsheet, see docs/imports.md; a JSON array: jq -c '.[]' FILE | branded-phone-numbers import -";

/**
 * Imports the numbers of `input`, NDJSON with one item per line as in responses. Replaces a number that exists, with
 * its entries, but keeps its `id` and times if the line omits them. Each number changes in one transaction, but the
 * import takes many.
 * @returns the counts of numbers and entries in the input
 * @throws {InputError} if lines have faults; then nothing has changed
 * @throws {Unfinished} for any error while writing; importing the same input again finishes it
 */
export async function importNumbers(
  url: string,
  input: Readable,
  options: Options = {},
): Promise<{ numbers: number; carrierStatuses: number }> {
  let carrierStatuses = 0;
  const change = {
    columns: COLUMNS,
    analyzed: ['phone_number', 'id', 'business_profile_id'],
    rowOf(bytes: Buffer) {
      const number = readLine(bytes);
      carrierStatuses += number.carrierStatuses.length;
      return rowOf(number);
    },
    formFault: (first: Buffer) => (/^\s*\{\s*["}]/.test(first.toString()) ? undefined : NOT_NDJSON),
    label: 'phoneNumber ',
    contradictions,
    parts: [changedProfiles, changedNumbers],
    verb: 'imported',
    remedy: 'run the same import again to finish it',
  };
  const { lines } = await changeByLines(url, input, change, options);
  return { numbers: lines, carrierStatuses };
}
