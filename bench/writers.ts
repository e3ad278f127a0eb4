/** Programs that write beside a command, as carriers' webhooks do, and how long their transactions take. */
import { setTimeout as sleep } from 'node:timers/promises';
import postgres, { type ISql, type Sql } from 'postgres';
import { phoneNumberAt } from '../test/support/generatedNumbers.js';

/** What they have done until they were stopped. */
export interface Writing {
  /** Milliseconds of the longest transaction of each writer: first of those that change an entry, then of the others. */
  longest: number[];
  transactions: number;
  /** Transactions that failed, by SQLSTATE. */
  failed: Record<string, number>;
}

const WRITERS = [changeEntry, changeEntry, changeNumber, changeNumber];
/** Between two transactions of a writer. */
const PAUSE_MS = 5;

/**
 * Starts four writers, each in a session of its own. They write to random ones of `numbers`, but no two to the same one:
 * in both orders of locks, they would end each other's transactions. The function returned stops them.
 */
export function startWriters(url: string, numbers: number): () => Promise<Writing> {
  const writing: Writing = { longest: WRITERS.map(() => 0), transactions: 0, failed: {} };
  let isStopping = false;
  const running = WRITERS.map(async (change, index) => {
    const sql = postgres(url, { max: 1, onnotice: () => {} });
    await sql`SELECT`;
    while (!isStopping) {
      const start = performance.now();
      try {
        const ownIndex = Math.floor((Math.random() * numbers) / WRITERS.length) * WRITERS.length + index + 1;
        await change(sql, phoneNumberAt(ownIndex));
        writing.transactions++;
      } catch (error) {
        const { code = String(error) } = error as { code?: string };
        writing.failed[code] = (writing.failed[code] ?? 0) + 1;
      }
      writing.longest[index] = Math.max(writing.longest[index] ?? 0, performance.now() - start);
      await sleep(PAUSE_MS);
    }
    await sql.end();
  });
  return async () => {
    isStopping = true;
    await Promise.all(running);
    return writing;
  };
}

const anyStatus = (sql: ISql) => sql`(enum_range(NULL::detailed_status))[${1 + Math.floor(Math.random() * 9)}::int]`;

/** Locks the entry, then its number. */
async function changeEntry(sql: Sql, phoneNumber: string): Promise<void> {
  await sql`
    UPDATE carrier_statuses SET detailed_status = ${anyStatus(sql)}
    WHERE (phone_number, carrier, feature) = (${phoneNumber}, 'AT&T', 'brandedCallerId')`;
}

/** Locks the number, then its entries. */
async function changeNumber(sql: Sql, phoneNumber: string): Promise<void> {
  await sql.begin(async (transaction) => {
    await transaction`
      UPDATE branded_phone_numbers SET internal_name = ${`Line ${Math.floor(Math.random() * 99)}`}
      WHERE phone_number = ${phoneNumber}`;
    await transaction`
      UPDATE carrier_statuses SET detailed_status = ${anyStatus(transaction)} WHERE phone_number = ${phoneNumber}`;
  });
}
