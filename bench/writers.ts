/** Writers that change numbers while a command runs, as carriers' webhooks do, and how long their transactions take. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { ISql, Sql } from 'postgres';
import { connectTo } from '../test/support/connection.js';
import { phoneNumberAt } from '../test/support/generatedNumbers.js';

export interface WriterResults {
  /** Milliseconds of each writer's longest transaction, in the order of `WRITERS`. */
  longest: number[];
  transactions: number;
  /** Failed transactions by SQLSTATE. */
  failed: Record<string, number>;
}

const WRITERS = [updateEntry, updateEntry, updateNumber, updateNumber];
/** Pause between two transactions of a writer. */
const PAUSE_MS = 5;

/**
 * Starts the writers, each with one connection to a database of `numbers` generated phone numbers. Each has its own share
 * of the numbers: since they lock rows in different orders, two writers on the same number could deadlock. Returns a
 * function that stops them.
 */
export function startWriters(url: string, numbers: number): () => Promise<WriterResults> {
  const results: WriterResults = { longest: WRITERS.map(() => 0), transactions: 0, failed: {} };
  let isStopping = false;
  const running = WRITERS.map(async (update, writer) => {
    const sql = connectTo(url);
    await sql`SELECT`;
    while (!isStopping) {
      const start = performance.now();
      try {
        const group = Math.floor((Math.random() * numbers) / WRITERS.length);
        await update(sql, phoneNumberAt(group * WRITERS.length + writer + 1));
        results.transactions++;
      } catch (error) {
        const { code = String(error) } = error as { code?: string };
        results.failed[code] = (results.failed[code] ?? 0) + 1;
      }
      results.longest[writer] = Math.max(results.longest[writer] ?? 0, performance.now() - start);
      await sleep(PAUSE_MS);
    }
    await sql.end();
  });
  return async () => {
    isStopping = true;
    await Promise.all(running);
    return results;
  };
}

const randomStatus = (sql: ISql) => sql`(enum_range(NULL::detailed_status))[${1 + Math.floor(Math.random() * 9)}::int]`;

/** Updates a carrier status; its trigger then locks the number. */
async function updateEntry(sql: Sql, phoneNumber: string): Promise<void> {
  await sql`
    UPDATE carrier_statuses SET detailed_status = ${randomStatus(sql)}
    WHERE (phone_number, carrier, feature) = (${phoneNumber}, 'AT&T', 'brandedCallerId')`;
}

/** Updates a number, then its carrier statuses. */
async function updateNumber(sql: Sql, phoneNumber: string): Promise<void> {
  await sql.begin(async (transaction) => {
    await transaction`
      UPDATE branded_phone_numbers SET internal_name = ${`Line ${Math.floor(Math.random() * 99)}`}
      WHERE phone_number = ${phoneNumber}`;
    await transaction`
      UPDATE carrier_statuses SET detailed_status = ${randomStatus(transaction)} WHERE phone_number = ${phoneNumber}`;
  });
}
