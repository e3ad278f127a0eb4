/** Transactions of a command: each on its own connection, with every setting that its outcome depends on. */
import postgres, { type TransactionSql } from 'postgres';
import type { Database } from './connect.js';

/** What a statement sees: what others committed before it, or everything as it was when the transaction began. */
export type Isolation = 'READ COMMITTED' | 'REPEATABLE READ READ ONLY';

/** It came with PostgreSQL 17. */
const TRANSACTION_TIMEOUT = { name: 'transaction_timeout', since: 170_000 };

/** Does `work` in a transaction; what it throws undoes all of it. */
export type Begin = <T>(isolation: Isolation, work: (sql: TransactionSql) => Promise<T>) => Promise<T>;

/**
 * Has `use` do one transaction after the other, on one connection of their own. Once one of them has failed, no other can
 * begin: the connection is closed, which undoes everything. postgres.js would send a ROLLBACK even if the connection itself
 * has failed, and throw where nobody can catch it.
 */
export async function inTransactions<T>(database: Database, use: (begin: Begin) => Promise<T>): Promise<T> {
  const client = postgres({ ...(database.$client.options as object), max: 1, idle_timeout: 0, max_lifetime: null });
  const begin: Begin = (isolation, work) =>
    new Promise((resolve, reject) => {
      const never = new Promise<never>(() => {});
      const guarded = (sql: TransactionSql) =>
        liftTimeLimits(sql)
          .then(() => work(sql))
          .catch((error) => {
            reject(error);
            return never;
          });
      client.begin(`ISOLATION LEVEL ${isolation}`, guarded).then((result) => resolve(result as never), reject);
    });
  try {
    return await use(begin);
  } finally {
    await client.end({ timeout: 0 });
  }
}

/** Does `work` in one transaction, on its own connection. */
export const inTransaction = <T>(database: Database, isolation: Isolation, work: (sql: TransactionSql) => Promise<T>) =>
  inTransactions(database, (begin) => begin(isolation, work));

/** Takes no snapshot yet, so that `work` sees the rows it locks first as they are once they are locked. */
async function liftTimeLimits(sql: TransactionSql): Promise<void> {
  // A pooler may have set the pages' limit for all its clients (docs/operations.md).
  await sql`SET LOCAL statement_timeout = 0`;
  const [{ server_version_num: version }] = await sql<[{ server_version_num: string }]>`SHOW server_version_num`;
  if (Number(version) >= TRANSACTION_TIMEOUT.since) await sql`SET LOCAL ${sql(TRANSACTION_TIMEOUT.name)} = 0`;
  // A statement ends soon after its client has, as by a signal. On Windows, PostgreSQL can't tell and refuses the setting.
  const [{ dynamic_shared_memory_type: memory }] = await sql<[{ dynamic_shared_memory_type: string }]>`
    SHOW dynamic_shared_memory_type`;
  if (memory !== 'windows') await sql`SET LOCAL client_connection_check_interval = '100ms'`;
}

/** Lets the planner read and sort whole tables, which pages never do (connect.ts), until the transaction ends. */
export async function planForWholeTables(sql: TransactionSql): Promise<void> {
  for (const name of ['enable_seqscan', 'enable_bitmapscan', 'enable_sort']) await sql`SET LOCAL ${sql(name)} = on`;
  await sql`SET LOCAL plan_cache_mode = auto`;
}
