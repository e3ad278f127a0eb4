/** Transactions of a command, apart from the pool, with every setting that their outcome depends on. */
import { closeDatabase, type Database, openDatabase } from './connect.js';

/** What a statement sees: what was committed before it, or everything as it was when the transaction began. */
export type Isolation = 'READ COMMITTED' | 'REPEATABLE READ READ ONLY';

/** Sends statements of one transaction. */
export type Transaction = Awaited<ReturnType<Database['$client']['reserve']>>;

export type Session = Awaited<ReturnType<typeof openSession>>;

/**
 * Opens a connection for transactions one after the other. PostgreSQL cancels a statement after `statementTimeout`
 * milliseconds (0: never), and a connection that stays silent for longer is cut.
 */
export async function openSession({ url }: Database, statementTimeout = 0) {
  const database = openDatabase(url, { connections: 1, statementTimeout });
  const close = () => closeDatabase(database, 0);
  try {
    // Before `reserve`, which waits forever for a connection that is not open yet, where the driver fetches no types.
    const limits = await timeLimits(database, statementTimeout);
    const sql = await database.$client.reserve();
    return {
      /**
       * Does `work` in a transaction. If it fails, the session is closed, which undoes everything: a ROLLBACK on a
       * connection that has failed itself would throw where it can't be caught.
       */
      async transaction<T>(isolation: Isolation, work: (sql: Transaction) => Promise<T>): Promise<T> {
        try {
          // They take no snapshot yet, so that `work` sees the rows it locks first as they are once they are locked.
          await sql.unsafe([`BEGIN ISOLATION LEVEL ${isolation}`, ...limits].join(';'));
          const result = await work(sql);
          await sql`COMMIT`;
          return result;
        } catch (error) {
          await close();
          throw error;
        }
      },
      /** Ends the connection at once; what it is doing is undone. */
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Does `work` in one transaction, on its own connection. */
export async function inTransaction<T>(
  database: Database,
  isolation: Isolation,
  work: (sql: Transaction) => Promise<T>,
): Promise<T> {
  const session = await openSession(database);
  try {
    return await session.transaction(isolation, work);
  } finally {
    await session.close();
  }
}

/** It came with PostgreSQL 17. */
const TRANSACTION_TIMEOUT = { name: 'transaction_timeout', since: 170_000 };

/** Settings of each transaction, since a pooler may have set the pages' limits for all its clients (docs/operations.md). */
async function timeLimits({ $client: sql }: Database, statementTimeout: number): Promise<string[]> {
  const [{ server_version_num: version }] = await sql<[{ server_version_num: string }]>`SHOW server_version_num`;
  const [{ dynamic_shared_memory_type: memory }] = await sql<[{ dynamic_shared_memory_type: string }]>`
    SHOW dynamic_shared_memory_type`;
  return [
    `SET LOCAL statement_timeout = ${statementTimeout}`,
    ...(Number(version) >= TRANSACTION_TIMEOUT.since ? [`SET LOCAL ${TRANSACTION_TIMEOUT.name} = 0`] : []),
    // A statement ends soon after its client has, as by a signal. On Windows, PostgreSQL can't tell and refuses the setting.
    ...(memory === 'windows' ? [] : [`SET LOCAL client_connection_check_interval = '100ms'`]),
  ];
}

/** Lets the planner read and sort whole tables, which pages never do (connect.ts), until the transaction ends. */
export async function planForWholeTables(sql: Transaction): Promise<void> {
  for (const name of ['enable_seqscan', 'enable_bitmapscan', 'enable_sort']) await sql`SET LOCAL ${sql(name)} = on`;
  await sql`SET LOCAL plan_cache_mode = auto`;
}
