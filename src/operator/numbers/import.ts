/** Imports numbers from NDJSON and CSV: checks all lines, then writes in short transactions, with few lines in memory. */
import type { Readable } from 'node:stream';
import { changedNumbers, changedProfiles } from './changes.js';
import { readCsv } from './csvInput.js';
import { notInInput } from './delete.js';
import { type GivenNumber, readLine } from './line.js';
import { fileOf, type LineFault, readLines } from './lines.js';
import { COLUMNS, contradictions, rowOf } from './stagedNumbers.js';
import { changeByLines, type Options } from './staging.js';

const NOT_NDJSON =
  'is not a JSON object; the input must be NDJSON: uncompressed UTF-8 text, one JSON object per line. ' +
  "For a spreadsheet, see docs/imports.md; for a JSON array: jq -c '.[]' FILE | branded-phone-numbers import -";

interface ImportOptions extends Options {
  /** The format of each file, by default NDJSON. */
  formats?: readonly ('ndjson' | 'csv')[];
  /** Whether to delete the numbers that the files do not have. */
  deleteMissing?: boolean;
  /** Whether to delete them even if they are more than half of all numbers. */
  force?: boolean;
}

/**
 * Imports the numbers of files: NDJSON with one item per line as in responses, or CSV. Replaces a number that exists, with
 * its entries, but keeps its `id` and times if the input omits them. Each number changes in one transaction, but the
 * import takes many.
 * @returns the counts of numbers and entries in the input, and of deleted numbers if `deleteMissing` is set
 * @throws {InputError} if lines have faults; then nothing has changed
 * @throws {Unfinished} for any error while writing; importing the same input again finishes it
 */
export async function importNumbers(
  url: string,
  files: Readable | readonly Readable[],
  { formats = [], deleteMissing = false, force = false, ...options }: ImportOptions = {},
): Promise<{ numbers: number; carrierStatuses: number; deleted?: number }> {
  let carrierStatuses = 0;
  const toRow = (number: GivenNumber) => {
    carrierStatuses += number.carrierStatuses.length;
    return rowOf(number);
  };
  const lines = {
    rowOf: (bytes: Buffer) => toRow(readLine(bytes)),
    formFault: (first: Buffer) => (/^\s*\{\s*["}]/.test(first.toString()) ? undefined : NOT_NDJSON),
    phoneNumberIn: (bytes: Buffer) => /"phoneNumber"\s*:\s*"([^"]*)"/.exec(bytes.toString())?.[1],
  };
  const withEntryRows = new Set<number>();
  const change = {
    read(file: Readable, start: number) {
      const i = fileOf(start);
      return formats[i] === 'csv'
        ? readCsv(file, start, toRow, () => withEntryRows.add(i))
        : readLines(file, start, lines);
    },
    columns: COLUMNS,
    analyzed: ['phone_number', 'id', 'business_profile_id'],
    repeated(fault: LineFault) {
      const [file, other] = [fileOf(fault.line), fileOf(fault.earlier ?? 0)];
      const isApart = file === other && withEntryRows.has(file);
      return isApart ? { ...fault, reason: `${fault.reason}, but its rows are apart: sort by phoneNumber` } : fault;
    },
    contradictions,
    parts: [changedProfiles, changedNumbers, ...(deleteMissing ? [notInInput(force)] : [])],
    numbers: changedNumbers,
    verb: 'imported',
    remedy: 'run the same import again to finish it',
  };
  const counts = await changeByLines(url, [files].flat(), change, options);
  const [, , deleted] = counts.changed;
  return { numbers: counts.lines, carrierStatuses, ...(deleted !== undefined && { deleted }) };
}
