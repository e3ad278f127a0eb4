/** The locks of an import. Nobody waits long for one that it has asked for and not yet got. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { TransactionSql } from 'postgres';
import { codeOf } from './errorCode.js';

const LOCK_NOT_AVAILABLE = '55P03';
/** Pause before another attempt: longer than most transactions of others. */
const PAUSE = 20; // ms
/** After this, a transaction that reads is a long one. */
const PATIENCE = 10_000; // ms

/**
 * Keeps all other writers out until the transaction ends, so that nothing comes between what is compared and what is
 * written; readers go on. Other imports wait here too. Having one lock, it never waits for another: it could be waited
 * for in turn.
 */
export async function lockOutWriters(sql: TransactionSql): Promise<void> {
  const lock = async (scope: TransactionSql) => {
    await scope`LOCK TABLE carrier_statuses IN SHARE ROW EXCLUSIVE MODE`;
    await scope`LOCK TABLE branded_phone_numbers, business_profiles IN SHARE ROW EXCLUSIVE MODE NOWAIT`;
  };
  while (!(await isLocked(sql, lock))) await sleep(PAUSE);
}

/**
 * Waits for a moment in which nobody reads `tables`, but never so long that those who come meanwhile would notice. Where a
 * reader waits for a lock, perhaps one of this transaction, it does not wait for that reader: one of both would be broken off.
 * @returns whether the moment came; with a long transaction that reads, such as pg_dump's, it does not
 */
export async function lockOutReaders(sql: TransactionSql, tables: readonly string[]): Promise<boolean> {
  const lock = async (scope: TransactionSql) => {
    await scope`SET LOCAL lock_timeout = '50ms'`;
    await scope`LOCK TABLE ${sql(tables)} IN ACCESS EXCLUSIVE MODE`;
  };
  const start = performance.now();
  while (performance.now() - start < PATIENCE) {
    const waiting = await sql`
      SELECT FROM pg_locks AS held JOIN pg_locks AS wanted USING (pid)
      WHERE held.granted AND held.relation = ANY (${tables}::text[]::regclass[]) AND NOT wanted.granted
        AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())`;
    if (waiting.length === 0 && (await isLocked(sql, lock))) return true;
    await sleep(PAUSE);
  }
  return false;
}

/** Whether `lock` got all that it asks for; nothing of it is kept where it did not. */
function isLocked(sql: TransactionSql, lock: (scope: TransactionSql) => Promise<void>): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const isNotAvailable = (error: unknown) => codeOf(error) === LOCK_NOT_AVAILABLE;
    const attempt = (scope: TransactionSql) =>
      lock(scope).catch((error) => {
        if (isNotAvailable(error)) throw error;
        reject(error);
        // postgres.js would roll back even where the connection is what failed, and throw where nobody can catch.
        return new Promise<never>(() => {});
      });
    // In a scope of its own: postgres.js fails a whole transaction for any query of it that failed outside of one.
    sql.savepoint(attempt).then(
      () => resolve(true),
      (error) => (isNotAvailable(error) ? resolve(false) : reject(error)),
    );
  });
}
