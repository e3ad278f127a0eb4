/** The lock of commands that change many numbers. */
import type { TransactionSql } from 'postgres';

/**
 * Keeps all other writers out until the transaction ends, so that nothing comes between what is compared and what is
 * written; readers go on. It waits its turn: writers that were there first end, later ones wait, a vacuum is canceled. All
 * writers of the sources pass this table first (drizzle/0001_derive.sql), so that one lock is enough.
 */
export const lockOutWriters = (sql: TransactionSql) => sql`LOCK TABLE branded_phone_numbers IN EXCLUSIVE MODE`;
