/** The locks of commands that change many numbers. */
import type { TransactionSql } from 'postgres';

/**
 * Keeps all other writers out until the transaction ends, so that nothing comes between what is compared and what is
 * written; readers go on. Imports wait here for each other, too. While it holds the first lock, it does not wait for the
 * others, whose holders may be waiting for the first: that would be a deadlock. Instead it starts over, after a pause in
 * which most other transactions end.
 */
export async function lockOutWriters(sql: TransactionSql): Promise<void> {
  await sql`
    DO $$ BEGIN
      LOOP
        BEGIN
          LOCK TABLE carrier_statuses IN SHARE ROW EXCLUSIVE MODE;
          LOCK TABLE branded_phone_numbers, business_profiles IN SHARE ROW EXCLUSIVE MODE NOWAIT;
          EXIT;
        EXCEPTION WHEN lock_not_available THEN
          -- The first lock is released by now.
          PERFORM pg_sleep(0.02);
        END;
      END LOOP;
    END $$`;
}
