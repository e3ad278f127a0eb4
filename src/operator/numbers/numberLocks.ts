/** The row locks of a step. */
import type { PendingQuery, Row } from 'postgres';
import type { Transaction } from '../../database/connection.js';
import type { Steps } from './steps.js';

type Lock = Steps['lockOrListBusy'];

/** Locks numbers and their entries FOR UPDATE, so that no other program can change them or add an entry. */
export const lockToWriteOrListBusy: Lock = async (sql, phoneNumbers, wait) => {
  // Waits in the same order as a program that updates an entry: the entry first, then its number.
  if (wait) await lockEntriesOrListBusy(sql, phoneNumbers, wait);
  // The second statement's snapshot includes entries that were committed until the numbers were locked.
  const busy = await Promise.all([
    lockRowsOrListBusy(sql, phoneNumbers, sql`FOR UPDATE ${skipLocked(sql, wait)}`),
    lockEntriesOrListBusy(sql, phoneNumbers, wait),
  ]);
  return busy.flat();
};

const lockEntriesOrListBusy: Lock = (sql, phoneNumbers, wait) => sql<{ key: string }[]>`
  WITH locked AS MATERIALIZED (
    SELECT phone_number, carrier, feature FROM carrier_statuses WHERE phone_number = ANY (${phoneNumbers}::text[])
    ORDER BY phone_number, carrier, feature FOR UPDATE ${skipLocked(sql, wait)}
  )
  SELECT DISTINCT phone_number AS key FROM (
    SELECT phone_number, carrier, feature FROM carrier_statuses WHERE phone_number = ANY (${phoneNumbers}::text[])
    EXCEPT TABLE locked
  ) AS busy`;

/** Locks numbers in the mode that derive() needs. */
export const lockToDeriveOrListBusy: Lock = (sql, phoneNumbers, wait) =>
  lockRowsOrListBusy(sql, phoneNumbers, sql`FOR NO KEY UPDATE ${skipLocked(sql, wait)}`);

const lockRowsOrListBusy = (sql: Transaction, phoneNumbers: string[], mode: PendingQuery<Row[]>) => sql<
  { key: string }[]
>`
  WITH locked AS MATERIALIZED (
    SELECT phone_number FROM branded_phone_numbers WHERE phone_number = ANY (${phoneNumbers}::text[]) ${mode}
  )
  SELECT phone_number AS key FROM branded_phone_numbers WHERE phone_number = ANY (${phoneNumbers}::text[])
  EXCEPT TABLE locked`;

export const skipLocked = (sql: Transaction, wait: boolean) => (wait ? sql`` : sql`SKIP LOCKED`);
