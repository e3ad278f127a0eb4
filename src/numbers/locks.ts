/** The locks of an import, and steps that PostgreSQL may refuse. It never waits for one lock while it holds another. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { TransactionSql } from 'postgres';
import { codeOf, LOCK_NOT_AVAILABLE } from '../database/errors.js';

/** Longer than most other transactions take. */
const RETRY_DELAY_MS = 20;

/**
 * Keeps all other writers out until the transaction ends, so that nothing comes between what is compared and what is
 * written; readers go on. Other imports wait here too. While it holds the first lock, it does not wait for the others,
 * whose holders may be waiting for the first: that would be a deadlock.
 */
export async function lockOutWriters(sql: TransactionSql): Promise<void> {
  const lock = async (scope: TransactionSql) => {
    await scope`LOCK TABLE carrier_statuses IN SHARE ROW EXCLUSIVE MODE`;
    await scope`LOCK TABLE branded_phone_numbers, business_profiles IN SHARE ROW EXCLUSIVE MODE NOWAIT`;
  };
  while (!(await succeeds(sql, lock, LOCK_NOT_AVAILABLE))) await sleep(RETRY_DELAY_MS);
}

/** Whether `work` can be done; false where PostgreSQL refuses it with the code `refusal`, and nothing of it is kept then. */
export function succeeds(
  sql: TransactionSql,
  work: (scope: TransactionSql) => Promise<void>,
  refusal: string,
): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const isRefused = (error: unknown) => codeOf(error) === refusal;
    const attempt = (scope: TransactionSql) =>
      work(scope).catch((error) => {
        if (isRefused(error)) throw error;
        reject(error);
        // postgres.js would roll back even where the connection is what failed, and throw where nobody can catch.
        return new Promise<never>(() => {});
      });
    // In a scope of its own: postgres.js fails a whole transaction for any query of it that failed outside of one.
    sql.savepoint(attempt).then(
      () => resolve(true),
      (error) => (isRefused(error) ? resolve(false) : reject(error)),
    );
  });
}
