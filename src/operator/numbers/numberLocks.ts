/** The row locks of a step. */
import type { Transaction } from '../../database/connection.js';
import { givenKeys, lockGiven } from './rows.js';
import type { Steps } from './steps.js';

/** Locks numbers and their entries FOR UPDATE, so that no other program can change them or add an entry. */
export const lockToWrite: Steps['lock'] = (sql, waits) => {
  const entries = sql`
    SELECT phone_number, carrier, feature FROM carrier_statuses WHERE phone_number = ANY (${givenKeys(sql)})
    ORDER BY phone_number, carrier, feature`;
  const lockEntries = lockGiven(sql, waits, entries, sql`FOR UPDATE`);
  return [
    // Waits in the same order as a program that updates an entry: the entry first, then its number.
    ...(waits ? [lockEntries] : []),
    lockGiven(sql, waits, numbers(sql), sql`FOR UPDATE`),
    // The snapshot of this statement includes entries that were committed until the numbers were locked.
    lockEntries,
  ];
};

/** Locks numbers in the mode that derive() needs. */
export const lockToDerive: Steps['lock'] = (sql, waits) => [
  lockGiven(sql, waits, numbers(sql), sql`FOR NO KEY UPDATE`),
];

const numbers = (sql: Transaction) =>
  sql`SELECT phone_number FROM branded_phone_numbers WHERE phone_number = ANY (${givenKeys(sql)})`;
