/** Runs a command's transactions on a separate connection, with every setting that affects their outcome. */
import { closeDatabase, type Database, openDatabase } from './connect.js';

/** The isolation of a transaction: each statement has its own snapshot, or all share one. */
export type Isolation = 'READ COMMITTED' | 'REPEATABLE READ' | 'REPEATABLE READ READ ONLY';

/** Sends statements of one transaction. */
export type Transaction = Database['$client'];

/** A connection for a sequence of transactions. */
export class Session {
  readonly #connection: Database;
  /** The settings that each transaction begins with. */
  readonly #limits: string[];

  constructor(connection: Database, limits: string[]) {
    this.#connection = connection;
    this.#limits = limits;
  }

  /**
   * Runs `work` in a transaction. If it fails, closes the session, which rolls back: a ROLLBACK might wait for a statement
   * that is still running, or for a connection that is dead.
   */
  async transaction<T>(isolation: Isolation, work: (sql: Transaction) => Promise<T>): Promise<T> {
    const { socket } = this.#connection;
    try {
      return await socket.awaited(this.#run(isolation, work));
    } catch (error) {
      // Not the error of a statement that followed the end of the connection.
      const reason = socket.failure ?? error;
      await this.close();
      throw reason;
    }
  }

  /** Returns the number of bytes that have arrived. */
  get bytesRead(): number {
    return this.#connection.socket.bytesRead;
  }

  /** Closes the connection at once; a running transaction is rolled back. */
  close(): Promise<void> {
    return closeDatabase(this.#connection, 0);
  }

  async #run<T>(isolation: Isolation, work: (sql: Transaction) => Promise<T>): Promise<T> {
    const { $client: sql } = this.#connection;
    // SET takes no snapshot: the first query of `work` does.
    await sql.unsafe([`BEGIN ISOLATION LEVEL ${isolation}`, ...this.#limits].join(';'));
    const result = await work(sql);
    await sql`COMMIT`;
    return result;
  }
}

/** Opens a session; `statementTimeout` is as in `openDatabase`. */
export async function openSession({ url }: Pick<Database, 'url'>, statementTimeout = 0): Promise<Session> {
  const connection = openDatabase(url, { statementTimeout });
  try {
    return new Session(connection, await connection.socket.awaited(timeLimits(connection, statementTimeout)));
  } catch (error) {
    await closeDatabase(connection, 0);
    throw error;
  }
}

/** Runs `work` in one transaction on a new connection. */
export async function inTransaction<T>(
  database: Pick<Database, 'url'>,
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

/** Returns settings for each transaction, since a pooler may set the limits of pages for all (docs/operations.md). */
async function timeLimits({ $client: sql }: Database, statementTimeout: number): Promise<string[]> {
  const [server] = await sql<[{ version: number; isWindows: boolean }]>`
    SELECT current_setting('server_version_num')::int AS version,
      current_setting('dynamic_shared_memory_type') = 'windows' AS "isWindows"`;
  return [
    `SET LOCAL statement_timeout = ${statementTimeout}`,
    // PostgreSQL has this setting since version 17.
    ...(server.version >= 170_000 ? ['SET LOCAL transaction_timeout = 0'] : []),
    // Ends a statement soon after its client exits. PostgreSQL on Windows does not support the setting.
    ...(server.isWindows ? [] : [`SET LOCAL client_connection_check_interval = '100ms'`]),
  ];
}

/** Lets the planner scan and sort whole tables until the transaction ends; `planningOptions` prevents it for pages. */
export async function planForWholeTables(sql: Transaction): Promise<void> {
  for (const name of ['enable_seqscan', 'enable_bitmapscan', 'enable_sort']) await sql`SET LOCAL ${sql(name)} = on`;
  await sql`SET LOCAL plan_cache_mode = auto`;
}
