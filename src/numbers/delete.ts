/** Deletes numbers by their phone numbers: all that are given or none, in one transaction. */
import type { Readable } from 'node:stream';
import type { TransactionSql } from 'postgres';
import { contract } from '../contract.js';
import type { Database } from '../database/connect.js';
import { inTransaction } from '../database/transaction.js';
import { InputError, type LineFault, linesOf, MOST_FAULTS, mergedFaults } from './lines.js';
import { lockOutWriters } from './locks.js';
import { copyRows } from './staging.js';

const schema = contract.components.schemas.PhoneNumber ?? {};
const PHONE_NUMBER = new RegExp(String(schema.pattern));

/** Where the phone numbers wait until all are known to be good. */
const GIVEN = { name: 'given', analyzed: ['phone_number'] };
/** Characters of rows that are sent to PostgreSQL in one write. */
const BLOCK_LENGTH = 64 * 1024;

/**
 * Deletes the numbers of `input`, a phone number a line, with their entries. Blank lines and space around a phone number
 * don't matter. Business profiles stay.
 * @returns how many numbers were deleted
 * @throws {InputError} when a line is no phone number, repeats one, or names one that does not exist; nothing has changed
 * then, nor after any other error
 */
export async function deleteNumbers(database: Database, input: Readable): Promise<number> {
  const faults: LineFault[] = [];

  async function* rows(): AsyncGenerator<string> {
    let block = '';
    let line = 0;
    for await (const bytes of linesOf(input)) {
      line++;
      const text = bytes.toString().trim();
      if (PHONE_NUMBER.test(text)) block += `${line}\t${text}\n`;
      else if (text !== '' && faults.push({ line, reason: faultOf(text) }) === MOST_FAULTS) break;
      if (block.length < BLOCK_LENGTH) continue;
      yield block;
      block = '';
    }
    yield block;
  }

  try {
    // Under the lock, each statement has to see what others committed before it.
    return await inTransaction(database, 'READ COMMITTED', async (sql) => {
      await sql`CREATE TEMPORARY TABLE given (line integer NOT NULL, phone_number text COLLATE "C" NOT NULL) ON COMMIT DROP`;
      await copyRows(sql, GIVEN, rows());
      await lockOutWriters(sql);
      const found = mergedFaults(faults, await repeated(sql), await unknown(sql));
      if (found.length > 0) throw new InputError(found);
      // In one statement, so that all are derived together; the foreign key would delete the entries number by number.
      const { count } = await sql`
        WITH entries AS (
          DELETE FROM carrier_statuses AS entry USING given WHERE entry.phone_number = given.phone_number
        )
        DELETE FROM branded_phone_numbers AS number USING given WHERE number.phone_number = given.phone_number`;
      return count;
    });
  } finally {
    input.destroy();
  }
}

function faultOf(text: string): string {
  const shown = (text.length > 60 ? `${text.slice(0, 60)}…` : text).replace(/\p{C}/gu, '\ufffd');
  return `"${shown}" is not a ${schema.title}, for example ${schema.examples?.[0]}`;
}

function repeated(sql: TransactionSql): Promise<LineFault[]> {
  return sql<LineFault[]>`
    SELECT line, format('%s is already on line %s', phone_number, earlier) AS reason
    FROM (SELECT line, phone_number, min(line) OVER (PARTITION BY phone_number) AS earlier FROM given) AS numbered
    WHERE line > earlier
    ORDER BY line LIMIT ${MOST_FAULTS}`;
}

function unknown(sql: TransactionSql): Promise<LineFault[]> {
  return sql<LineFault[]>`
    SELECT line, format('there is no number %s', phone_number) AS reason
    FROM given LEFT JOIN branded_phone_numbers AS number USING (phone_number)
    WHERE number.phone_number IS NULL
    ORDER BY line LIMIT ${MOST_FAULTS}`;
}
