/** Deletes numbers by their phone numbers: all that are given or none, in one transaction. */
import type { Readable } from 'node:stream';
import { contract } from '../contract.js';
import type { Database } from '../database/connect.js';
import { printable, shorten } from '../messages/shorten.js';
import { LineError, type LineFault, MAX_FAULTS } from './lines.js';
import { changeByLines } from './staging.js';

const schema = contract.components.schemas.PhoneNumber ?? {};
const PHONE_NUMBER = new RegExp(String(schema.pattern));

/**
 * Deletes the numbers of `input`, one phone number a line, with their entries. Blank lines and space around a phone number
 * don't matter. Business profiles stay.
 * @returns how many numbers were deleted
 * @throws {InputError} when a line is not a phone number, repeats one, or names one that does not exist; nothing has changed
 * then, nor after any other error
 */
export function deleteNumbers(database: Database, input: Readable): Promise<number> {
  return changeByLines(database, input, {
    createTable: (sql) => sql`
      CREATE TEMPORARY TABLE staged (line integer NOT NULL, phone_number text COLLATE "C" NOT NULL) ON COMMIT DROP`,
    analyzed: ['phone_number'],
    rowOf(line, bytes) {
      const text = bytes.toString().trim();
      if (PHONE_NUMBER.test(text)) return `${line}\t${text}\n`;
      const reason = `is not a ${schema.title}, for example ${schema.examples?.[0]}`;
      throw new LineError(`"${printable(shorten(text))}" ${reason}`);
    },
    label: '',
    contradictions: (sql) => [
      sql<LineFault[]>`
        SELECT line, format('there is no number %s', phone_number) AS reason
        FROM staged LEFT JOIN branded_phone_numbers AS number USING (phone_number)
        WHERE number.phone_number IS NULL
        ORDER BY line LIMIT ${MAX_FAULTS}`,
    ],
    async write(sql) {
      await sql`SET LOCAL branded_phone_numbers.defer = 'on'`;
      // The foreign key would delete the entries number by number.
      const { count } = await sql`
        WITH entries AS (
          DELETE FROM carrier_statuses AS entry USING staged WHERE entry.phone_number = staged.phone_number
        )
        DELETE FROM branded_phone_numbers AS number USING staged WHERE number.phone_number = staged.phone_number`;
      // Where the triggers on the sources are switched off, too. They are derived at the commit.
      await sql`INSERT INTO deferred SELECT array_agg(phone_number) FROM staged`;
      return count;
    },
  });
}
