/** A write reads what its numbers need, whatever the planner believes of the tables: other indexes hold phone numbers, too. */
import type { Sql } from 'postgres';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo } from '../connection.js';
import { useDatabase } from '../database.js';
import { PROFILE } from './sessions.js';
import { believeInOneRow } from './statistics.js';

const NUMBERS = 20_000;
const CHANGES = 50;
/** Of a change, with what it writes: some hundred. If one look-up reads a whole index, they are thousands. */
const MAX_BLOCKS = 500;

const database = useDatabase();
let sql: Sql;

beforeAll(async () => {
  sql = connectTo(database.url);
  await sql`INSERT INTO business_profiles VALUES (${PROFILE}, 'Circle Bank', 'approved')`;
  await sql`SET session_replication_role = replica`;
  await sql`
    INSERT INTO branded_phone_numbers (phone_number, business_profile_id, internal_name)
    SELECT '+1' || 2000000000 + i, ${PROFILE}, 'Line ' || i % 100 FROM generate_series(1, ${NUMBERS}) AS i`;
  await sql`
    INSERT INTO carrier_statuses SELECT phone_number, carrier, 'brandedCallerId', 'approved.optIn'
    FROM branded_phone_numbers, unnest('{AT&T,Verizon}'::text[]) AS carrier`;
  await sql`SELECT count(*) FROM derive(ARRAY(SELECT phone_number FROM branded_phone_numbers ORDER BY 1))`;
  await sql`RESET session_replication_role`;
});
afterAll(() => sql.end());

/** The blocks of all tables and indexes that were asked for so far. */
async function blocks(): Promise<number> {
  await sql`SELECT pg_stat_force_next_flush()`;
  const [row] = await sql`
    SELECT sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::int AS count FROM pg_statio_user_tables`;
  return row?.count;
}

test.each([1 / 100, 1 / 5, 1])('with statistics of one row, after %d of a first import', async (part) => {
  await believeInOneRow(sql, part);
  await sql`DISCARD PLANS`;
  const before = await blocks();
  for (let i = 1; i <= CHANGES; i++) {
    const phoneNumber = `+1${2_000_000_000 + 397 * i}`;
    await sql`UPDATE carrier_statuses SET detailed_status = 'rejected.optIn' WHERE phone_number = ${phoneNumber}`;
    await sql`UPDATE branded_phone_numbers SET internal_name = 'Other' WHERE phone_number = ${phoneNumber}`;
  }
  expect(((await blocks()) - before) / CHANGES).toBeLessThan(MAX_BLOCKS);
});
