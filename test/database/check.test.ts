import type { Sql } from 'postgres';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { closeDatabase, type Database, openDatabase } from '../../src/database/connect.js';
import { findDifferences, repairDifferences } from '../../src/database/derived.js';
import { inTransaction } from '../../src/database/transaction.js';
import { createDatabase } from '../database.js';
import { entryWith, numberWith, write } from '../numbers.js';
import { expectDerivedToAgree } from './derived.js';

let database: Database;
let drop: () => Promise<void>;
const sql = () => database.$client as unknown as Sql;
const find = () => inTransaction(database, 'READ COMMITTED', findDifferences);

beforeAll(async () => {
  const created = await createDatabase();
  drop = created.drop;
  database = openDatabase(created.url);
});
afterAll(async () => {
  await closeDatabase(database);
  await drop();
});
beforeEach(async () => {
  await sql()`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`;
  const carrierStatuses = [entryWith('AT&T', 'brandedCallerId', 'approved.optIn')];
  await write(database, [
    numberWith({ phoneNumber: '+14155550123', carrierStatuses }),
    numberWith({ phoneNumber: '+14155550124', carrierStatuses }),
    numberWith({ phoneNumber: '+14155550125' }),
  ]);
});

test('A check finds nothing where all is right', async () => {
  expect(await find()).toEqual([]);
});

test.each([
  ['an item', `UPDATE branded_phone_numbers SET item_tail = '' WHERE phone_number = '+14155550123'`, 'numbers'],
  ['a status', `UPDATE branded_phone_numbers SET status = 'rejected' WHERE phone_number = '+14155550123'`, 'numbers'],
  ['an entry', `UPDATE carrier_statuses SET carrier = 'Verizon' WHERE phone_number = '+14155550123'`, 'numbers'],
  ['a business profile', `UPDATE business_profiles SET item = ''`, 'business profiles'],
  ['a posting that is missing', `DELETE FROM postings WHERE phone_number = '+14155550123'`, 'numbers in the index'],
  [
    'a posting too many',
    `INSERT INTO postings SELECT 99, phone_number, id FROM branded_phone_numbers`,
    'numbers in the index',
  ],
  ['another group in the index', `UPDATE postings SET reporting_group = 'x'`, 'numbers in the index'],
])('A check finds %s that was written without the triggers, and repairs it', async (_what, statement, what) => {
  await sql().begin(async (transaction) => {
    await transaction`SET LOCAL session_replication_role = replica`;
    await transaction.unsafe(statement);
  });
  expect((await find()).map((difference) => difference.what)).toContain(what);
  await inTransaction(database, 'READ COMMITTED', repairDifferences);
  expect(await find()).toEqual([]);
  await expectDerivedToAgree(sql());
});
