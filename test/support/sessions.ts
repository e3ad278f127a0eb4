/** Two SQL sessions on the test's own database, which holds one business profile and no number before each test. */
import type { Sql } from 'postgres';
import { afterAll, beforeAll, beforeEach } from 'vitest';
import { connectTo } from './connection.js';
import { createDatabase } from './database.js';

export const PROFILE = '6513270e-269e-4d37-b2a7-4de452e6b438';

export let first: Sql;
export let second: Sql;

export function useSessions(): void {
  let drop: () => Promise<void>;
  beforeAll(async () => {
    const created = await createDatabase();
    drop = created.drop;
    [first, second] = [connectTo(created.url), connectTo(created.url)];
  });
  afterAll(async () => {
    await Promise.all([first.end(), second.end()]);
    await drop();
  });
  beforeEach(async () => {
    await first`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`;
    await first`INSERT INTO business_profiles VALUES (${PROFILE}, 'Circle Bank', 'approved')`;
  });
}

/** A number of that business profile. */
export const addNumber = (sql: Sql, phoneNumber: string) =>
  sql`INSERT INTO branded_phone_numbers (phone_number, business_profile_id) VALUES (${phoneNumber}, ${PROFILE})`;
