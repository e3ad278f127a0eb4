/**
 * Writes and repairs read only the rows of their numbers, even if the planner's statistics say that each table has one row:
 * it could then choose an index that has phone numbers behind other columns, and read all of it.
 */
import type { Sql } from 'postgres';
import { beforeAll, describe, expect, it } from 'vitest';
import { deriveAll } from '../../src/operator/numbers/check.js';
import { useDatabase } from '../support/database.js';
import { randomPart } from '../support/randomPart.js';
import { PROFILE } from '../support/sessions.js';
import { fakeOneRowStatistics } from '../support/statistics.js';

const NUMBERS = 20_000;
const CHANGES = 50;
/** Blocks of a change, which are about a hundred. If a look-up reads a whole index, they are thousands. */
const MAX_BLOCKS = 500;

const database = useDatabase();
let sql: Sql;

beforeAll(async () => {
  sql = database.sql;
  // Autovacuum would read whole indexes meanwhile, and correct the statistics.
  for (const table of ['branded_phone_numbers', 'carrier_statuses', 'items', 'postings'])
    await sql`ALTER TABLE ${sql(table)} SET (autovacuum_enabled = false)`;
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

const ALL_TABLES = 'sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read) FROM pg_statio_user_tables';
/** The indexes of items and postings that are not their primary keys. */
const OTHER_INDEXES = `sum(idx_blks_hit + idx_blks_read) FROM pg_statio_user_indexes WHERE indexrelname LIKE '%\\_by\\_%'`;

/** Returns how many blocks were read so far, from disk or memory. */
async function blocks(sumFrom: string): Promise<number> {
  await sql`SELECT pg_stat_force_next_flush()`;
  const [row] = await sql.unsafe(`SELECT ${sumFrom}`);
  return Number(row?.sum);
}

describe.each(randomPart([1 / 100, 1 / 5, 1]))(
  'with statistics of one row, taken after %d of a first import,',
  (part) => {
    it('a change reads few blocks', async () => {
      await fakeOneRowStatistics(sql, part);
      await sql`DISCARD PLANS`;
      const before = await blocks(ALL_TABLES);
      for (let i = 1; i <= CHANGES; i++) {
        const phoneNumber = `+1${2_000_000_000 + 397 * i}`;
        await sql`UPDATE carrier_statuses SET detailed_status = 'rejected.optIn' WHERE phone_number = ${phoneNumber}`;
        await sql`UPDATE branded_phone_numbers SET internal_name = 'Other' WHERE phone_number = ${phoneNumber}`;
      }
      expect(((await blocks(ALL_TABLES)) - before) / CHANGES).toBeLessThan(MAX_BLOCKS);
    });

    it('deleting stale postings reads few blocks', async () => {
      await sql`INSERT INTO postings SELECT 99, phone_number, business_profile_id FROM items WHERE phone_number LIKE '%0'`;
      await fakeOneRowStatistics(sql, part);
      const before = await blocks(OTHER_INDEXES);
      const [found] = await deriveAll(database.url, { keep: true });
      expect(found).toMatchObject({
        nouns: [expect.anything(), 'numbers have stale index entries'],
        count: NUMBERS / 10,
      });
      // To find stale postings, all are read once, perhaps from one of these indexes.
      expect((await blocks(OTHER_INDEXES)) - before).toBeLessThan(2 * MAX_BLOCKS);
    });
  },
);
