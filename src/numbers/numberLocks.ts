/** How a step locks numbers. */
import type { Transaction } from '../database/transaction.js';

type Lock = (sql: Transaction, phoneNumbers: string[], waits: boolean) => Promise<{ key: string }[]>;

/**
 * Locks numbers with their entries, so that both can be written; FOR UPDATE, so that no other program can add an entry.
 * Returns the phone numbers of which another transaction holds the number or an entry.
 */
export const lockNumbersAndEntries: Lock = async (sql, phoneNumbers, waits) => {
  // A step that waits does so in the order in which an UPDATE of an entry locks: the entry, then its number.
  if (waits) await lockEntries(sql, phoneNumbers, waits);
  const busyNumbers = await sql<{ key: string }[]>`
    WITH locked AS MATERIALIZED (
      SELECT phone_number FROM branded_phone_numbers WHERE phone_number = ANY (${phoneNumbers}::text[])
      FOR UPDATE ${waits ? sql`` : sql`SKIP LOCKED`}
    )
    SELECT phone_number AS key FROM branded_phone_numbers WHERE phone_number = ANY (${phoneNumbers}::text[])
    EXCEPT TABLE locked`;
  // A later statement sees the entries that were committed before their numbers were locked.
  return [...busyNumbers, ...(await lockEntries(sql, phoneNumbers, waits))];
};

const lockEntries: Lock = (sql, phoneNumbers, waits) => sql<{ key: string }[]>`
  WITH locked AS MATERIALIZED (
    SELECT phone_number, carrier, feature FROM carrier_statuses WHERE phone_number = ANY (${phoneNumbers}::text[])
    ORDER BY phone_number, carrier, feature FOR UPDATE ${waits ? sql`` : sql`SKIP LOCKED`}
  )
  SELECT DISTINCT phone_number AS key FROM (
    SELECT phone_number, carrier, feature FROM carrier_statuses WHERE phone_number = ANY (${phoneNumbers}::text[])
    EXCEPT TABLE locked
  ) AS busy`;

/** Locks numbers as derive() does. Returns the phone numbers that another transaction holds. */
export const lockNumbers: Lock = (sql, phoneNumbers, waits) => sql<{ key: string }[]>`
  WITH locked AS MATERIALIZED (
    SELECT phone_number FROM branded_phone_numbers WHERE phone_number = ANY (${phoneNumbers}::text[])
    FOR NO KEY UPDATE ${waits ? sql`` : sql`SKIP LOCKED`}
  )
  SELECT phone_number AS key FROM branded_phone_numbers WHERE phone_number = ANY (${phoneNumbers}::text[])
  EXCEPT TABLE locked`;
