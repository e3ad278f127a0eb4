/** Deletes numbers by phone number: checks all lines, then deletes in short transactions. */
import { isUtf8 } from 'node:buffer';
import type { Readable } from 'node:stream';
import { contract } from '../../contract.js';
import type { Transaction } from '../../database/connection.js';
import { countOf } from '../../messages/count.js';
import { describeValue } from '../../messages/faults.js';
import { UserError } from '../../userError.js';
import { LineError, type LineFault, MAX_FAULTS, readLines } from './lines.js';
import { lockToWrite } from './numberLocks.js';
import { givenKeys, type Row, rowOfGiven } from './rows.js';
import { changeByLines, type Options, type Part } from './staging.js';

const schema = contract.components.schemas.PhoneNumber ?? {};
const NOT_TEXT =
  'is not text in UTF-8; the input must have one phone number per line. ' +
  'To convert UTF-16: iconv -f UTF-16 -t UTF-8 FILE | branded-phone-numbers delete';
const PHONE_NUMBER = new RegExp(String(schema.pattern));

/**
 * Deletes the numbers of files, one phone number per line, with their entries. Ignores blank lines and space around a
 * phone number. Keeps business profiles.
 * @param options.ifExists whether to skip numbers that don't exist
 * @returns the number of lines that are not blank, and of deleted numbers
 * @throws {InputError} if a line is not a phone number, repeats an earlier one, or names a number that does not exist; then
 *   nothing has changed
 * @throws {Unfinished} for any error while deleting
 */
export async function deleteNumbers(
  url: string,
  files: Readable | readonly Readable[],
  { ifExists = false, ...options }: Options & { ifExists?: boolean } = {},
): Promise<{ lines: number; deleted: number }> {
  const lines = {
    rowOf(bytes: Buffer) {
      const text = bytes.toString().trim();
      if (PHONE_NUMBER.test(text)) return text;
      throw new LineError(describeValue(schema, text));
    },
    formFault: (first: Buffer) => (isUtf8(first) && !first.includes(0) ? undefined : NOT_TEXT),
  };
  const change = {
    read: (file: Readable, start: number) => readLines(file, start, lines),
    columns: { phone_number: 'text COLLATE "C"' },
    analyzed: ['phone_number'],
    repeated: ({ phoneNumber, ...fault }: LineFault) => ({ ...fault, reason: `${phoneNumber} is given twice` }),
    contradictions: (sql: Transaction) => (ifExists ? [] : [missing(sql)]),
    parts: [existing],
    numbers: existing,
    verb: 'deleted',
    remedy: 'run the same delete again with --if-exists to finish it',
  };
  const counts = await changeByLines(url, [files].flat(), change, options);
  return { lines: counts.lines, deleted: counts.changed[0] ?? 0 };
}

const missing = (sql: Transaction): Promise<LineFault[]> => sql`
  SELECT line, format('there is no number %s', phone_number) AS reason FROM staged
  WHERE NOT EXISTS (SELECT FROM branded_phone_numbers AS number WHERE number.phone_number = staged.phone_number OFFSET 0)
  ORDER BY line LIMIT ${MAX_FAULTS}`;

const rowToDelete = (sql: Transaction) => {
  const entries = sql`SELECT count(*) FROM carrier_statuses WHERE phone_number = given.phone_number`;
  return rowOfGiven(sql, { phone_number: 'text' }, entries);
};

const existing: Part = {
  noun: 'number',
  find: (sql) => sql<{ row: Row }[]>`
    SELECT ${rowToDelete(sql)} AS row
    FROM staged AS given
    WHERE EXISTS (SELECT FROM branded_phone_numbers AS number WHERE number.phone_number = given.phone_number OFFSET 0)
    ORDER BY phone_number`,
  lock: lockToWrite,
  countsChanges: true,
  // The entries first: the foreign key would cascade number by number. The INSERT into deferred derives the numbers
  // even if the sources' triggers are disabled.
  write: (sql) => [
    sql`SET LOCAL branded_phone_numbers.defer = 'on'`,
    sql`DELETE FROM carrier_statuses WHERE phone_number = ANY (${givenKeys(sql)})`,
    sql`DELETE FROM branded_phone_numbers WHERE phone_number = ANY (${givenKeys(sql)}) RETURNING phone_number AS key`,
    sql`INSERT INTO deferred VALUES (${givenKeys(sql)})`,
  ],
};

/** Numbers that exist, but are not in the input. Without `force`, they must not be more than half of those that exist. */
export const notInInput = (force: boolean): Part => ({
  ...existing,
  verb: 'deleted ',
  find: (sql) => sql<{ row: Row }[]>`
    SELECT ${rowToDelete(sql)} AS row
    FROM branded_phone_numbers AS given
    WHERE NOT EXISTS (SELECT FROM staged WHERE staged.phone_number = given.phone_number)
    ORDER BY phone_number`,
  async rejectIfTooMany(sql, rows) {
    if (force) return;
    const [{ all = 0 } = {}] = await sql<{ all: number }[]>`SELECT count(*)::float8 AS all FROM branded_phone_numbers`;
    if (rows <= all / 2) return;
    const share = `${rows} of the ${countOf(all, 'number')} that exist are not in the input, more than half`;
    throw new UserError(`${share}; nothing was changed: pass --force if they are to be deleted`);
  },
});
