/** The row locks of a step. */
import type { PendingQuery, Row } from 'postgres';
import type { Transaction } from '../../database/transaction.js';

/**
 * Locks rows of `phoneNumbers`. Returns the phone numbers that another transaction holds; with `wait`, waits for them.
 */
type Lock = (sql: Transaction, phoneNumbers: string[], wait: boolean) => Promise<{ key: string }[]>;

/** Locks numbers and their entries FOR UPDATE, so that no other program can change them or add an entry. */
export const lockNumbersAndEntries: Lock = async (sql, phoneNumbers, wait) => {
  // To wait in the same order as an UPDATE of an entry: the entry first, then its number.
  if (wait) await lockEntries(sql, phoneNumbers, wait);
  const busyNumbers = await lockRows(sql, phoneNumbers, sql`FOR UPDATE ${skipLocked(sql, wait)}`);
  // In a separate statement, whose snapshot includes entries that were committed until the numbers were locked.
  return [...busyNumbers, ...(await lockEntries(sql, phoneNumbers, wait))];
};

const lockEntries: Lock = (sql, phoneNumbers, wait) => sql<{ key: string }[]>`
  WITH locked AS MATERIALIZED (
    SELECT phone_number, carrier, feature FROM carrier_statuses WHERE phone_number = ANY (${phoneNumbers}::text[])
    ORDER BY phone_number, carrier, feature FOR UPDATE ${skipLocked(sql, wait)}
  )
  SELECT DISTINCT phone_number AS key FROM (
    SELECT phone_number, carrier, feature FROM carrier_statuses WHERE phone_number = ANY (${phoneNumbers}::text[])
    EXCEPT TABLE locked
  ) AS busy`;

/** Locks numbers in the mode that derive() needs. */
export const lockNumbers: Lock = (sql, phoneNumbers, wait) =>
  lockRows(sql, phoneNumbers, sql`FOR NO KEY UPDATE ${skipLocked(sql, wait)}`);

const lockRows = (sql: Transaction, phoneNumbers: string[], mode: PendingQuery<Row[]>) => sql<{ key: string }[]>`
  WITH locked AS MATERIALIZED (
    SELECT phone_number FROM branded_phone_numbers WHERE phone_number = ANY (${phoneNumbers}::text[]) ${mode}
  )
  SELECT phone_number AS key FROM branded_phone_numbers WHERE phone_number = ANY (${phoneNumbers}::text[])
  EXCEPT TABLE locked`;

const skipLocked = (sql: Transaction, wait: boolean) => (wait ? sql`` : sql`SKIP LOCKED`);
