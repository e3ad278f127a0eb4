/** Two SQL sessions on one database, which has one business profile and no numbers at the start of each test. */
import type { Sql } from 'postgres';
import { afterAll, beforeAll, beforeEach } from 'vitest';
import { connectTo } from './connection.js';
import { useDatabase } from './database.js';

export const PROFILE = '6513270e-269e-4d37-b2a7-4de452e6b438';

export let first: Sql;
export let second: Sql;

export function useSessions(): void {
  const database = useDatabase();
  beforeAll(() => {
    [first, second] = [connectTo(database.url), connectTo(database.url)];
  });
  afterAll(() => Promise.all([first.end(), second.end()]));
  beforeEach(async () => {
    await first`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`;
    await first`INSERT INTO business_profiles VALUES (${PROFILE}, 'Circle Bank', 'approved')`;
  });
}

/** Inserts a number of that business profile. */
export const addNumber = (sql: Sql, phoneNumber: string) =>
  sql`INSERT INTO branded_phone_numbers (phone_number, business_profile_id) VALUES (${phoneNumber}, ${PROFILE})`;
