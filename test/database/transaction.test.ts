import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { closeDatabase, type Database, openDatabase } from '../../src/database/connect.js';
import { type Isolation, inTransaction } from '../../src/database/transaction.js';
import { createDatabase } from '../support/database.js';

describe('a transaction of a command, on a database with another isolation and short time limits,', () => {
  let database: Database;
  let drop: () => Promise<void>;

  beforeAll(async () => {
    const created = await createDatabase();
    drop = created.drop;
    const name = new URL(created.url).pathname.slice(1);
    const before = openDatabase(created.url, { connections: 1 });
    const [server] = await before.$client<[{ server_version_num: string }]>`SHOW server_version_num`;
    const defaults = {
      default_transaction_isolation: 'serializable',
      statement_timeout: '500ms',
      lock_timeout: '500ms',
      idle_in_transaction_session_timeout: '500ms',
      ...(Number(server.server_version_num) >= 170_000 ? { transaction_timeout: '1s' } : {}),
    };
    for (const [setting, value] of Object.entries(defaults)) {
      await before.$client.unsafe(`ALTER DATABASE ${name} SET ${setting} = '${value}'`);
    }
    await closeDatabase(before);
    database = openDatabase(created.url);
  });
  afterAll(async () => {
    await closeDatabase(database);
    await drop();
  });

  it.each<[Isolation, string]>([
    ['READ COMMITTED', 'read committed'],
    ['REPEATABLE READ READ ONLY', 'repeatable read'],
  ])('is %s and may take its time', async (isolation, shown) => {
    const seen = await inTransaction(database, isolation, async (sql) => {
      await sql`SELECT pg_sleep(0.6)`;
      await sleep(600);
      const [row] = await sql`SHOW transaction_isolation`;
      return row?.transaction_isolation;
    });
    expect(seen).toBe(shown);
  });

  it('is rolled back if it fails, and throws the error', async () => {
    const work = inTransaction(database, 'READ COMMITTED', async (sql) => {
      await sql`INSERT INTO business_profiles VALUES ('6513270e-269e-4d37-b2a7-4de452e6b438', 'Circle Bank', 'approved')`;
      await sql`SELECT 1 / 0`;
    });
    await expect(work).rejects.toThrow('division by zero');
    expect(await database.$client`SELECT FROM business_profiles`).toHaveLength(0);
  });
});
