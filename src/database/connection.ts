/**
 * A connection to PostgreSQL: a driver with one socket, which is opened by its first statement, and once. When it breaks, it is
 * thrown away, since postgres.js would keep what it knew of a broken connection.
 *
 * postgres.js waits forever on a connection that was cut silently. But PostgreSQL cancels a statement at its time limit, so
 * while a response is awaited, a connection that has been silent for longer is dead.
 */
import { randomBytes } from 'node:crypto';
import { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import postgres, { type PendingQuery, type Row } from 'postgres';
import { addressOf, type DatabaseAddress } from '../config/databaseAddress.js';
import { createDriver, type Driver, type Limits, settingsOfTransactions } from './driver.js';
import { drizzle } from './drizzle.js';
import { causeOf, endsOfConnections, failureOf, isOutage } from './errors.js';
import { agreeOnTls, closedError, serverError, watchLogin } from './login.js';
import * as schema from './schema.js';

/** Sends statements on a connection, built by Drizzle or written out (`$client`), while `run` or `transaction` waits for them. */
export type Database = ReturnType<typeof drizzle<typeof schema, Driver>>;
export type Query<T> = (database: Database) => PromiseLike<T>;
/** The isolation of a transaction: each statement has its own snapshot, or all share one. */
export type Isolation = 'READ COMMITTED' | 'REPEATABLE READ READ ONLY';
export type Transaction = Driver;

/** Tells this process from others in `pg_stat_activity`, whose names have 63 bytes; in containers, each is process 1. */
const PROCESS_NAME = randomBytes(4).toString('hex');
/** The delay that the server and the network may add to a statement's time limit. */
const RESPONSE_MARGIN_MS = 500;
/** The longest silence of the server until it has accepted the login. */
const LOGIN_SILENCE_MS = 1500;
/** The time limits of a query for which a connection is opened, in ms. That of a lock comes first, since its error says why. */
const QUERY_LIMITS = { lockTimeout: 4000, statementTimeout: 4500 };
/** The code of the error if the server did not respond. */
export const SILENT = 'CONNECTION_SILENT';

const empty: Query<unknown> = ({ $client }) => $client.unsafe('SELECT');

interface Options extends Limits {
  /** How many queries it gets before it has to become idle: PostgreSQL reads several messages at once faster than one by one. */
  queriesAtOnce?: number;
  /** Whether PostgreSQL may be silent for longer than a statement takes: it got several, or a commit waits for a standby. */
  mayBeSilent?: boolean;
  /** Its name in `pg_stat_activity`. */
  name?: string;
  /** Called once, in the event that makes it unusable. */
  onBroken?(reason: Error): void;
}

export class Connection {
  /** Why it can't be used, if it can't: it could not be opened, has broken, or was closed. */
  failure: Error | undefined;
  running = 0;
  /** Whether PostgreSQL has responded to a query since it was opened. A pooler may accept a login, and have no connection. */
  hasServed = false;
  /** Whether it may get another query; see `queriesAtOnce`. */
  hasRoom = true;
  /** When the server last sent something, or was asked for something while nothing was awaited, by `performance.now()`. */
  quietSince = 0;
  readonly #address: DatabaseAddress;
  readonly #options: Options;
  readonly #database: Database;
  #socket: Socket | undefined;
  #isLoggedIn = false;
  /** The longest silence: at first until it is logged in, then while a response is awaited. */
  #maxSilenceMs = LOGIN_SILENCE_MS;
  /** Whether it runs a transaction, and nothing else. */
  #isReserved = false;
  #silenceTimer: NodeJS.Timeout | undefined;
  #settings: string | undefined;

  /** @throws if the address can't be used, such as for a certificate that is not there */
  constructor(url: string, options: Options = {}) {
    this.#address = addressOf(url);
    this.#options = options;
    const name = options.name ?? `${this.#address.applicationName.slice(0, 54)} ${PROCESS_NAME}`;
    const driver = createDriver(this.#address, options, name, () => this.#openSocket());
    this.#database = drizzle(driver, { schema });
  }

  /** Opens it, unless it is open. @throws if that fails */
  async open(): Promise<this> {
    await this.#run(empty, true);
    if (this.failure) throw this.failure;
    return this;
  }

  /** Runs `query`, which must wait for its statements. If one fails, the connection can still be used, unless it is broken. */
  run<T>(query: Query<T>): Promise<T> {
    return this.#run(query, false);
  }

  /**
   * Runs `work` in a transaction, on a connection that runs nothing else meanwhile. If it fails, closes the connection, which
   * rolls back: a ROLLBACK might wait for a statement that is still running, or for a connection that is dead.
   */
  transaction<T>(isolation: Isolation, work: (sql: Transaction) => Promise<T>): Promise<T> {
    return this.#run(async ({ $client: sql }) => {
      // SET takes no snapshot: the first query of `work` does.
      await sql.unsafe(`BEGIN ISOLATION LEVEL ${isolation};${await this.#readSettings()}`);
      const result = await work(sql);
      await sql`COMMIT`;
      return result;
    }, true);
  }

  /**
   * Runs a transaction whose messages are sent without waiting for responses. The last one has all statements that take locks,
   * and COMMIT or ROLLBACK: so PostgreSQL holds locks only while it works. If it fails, closes the connection.
   * @param onBegun if it is given, it is called with the transaction's id before any message is sent
   * @returns the rows of the last message's statements
   */
  transactionAtOnce(
    messages: (sql: Transaction) => PendingQuery<Row[]>[],
    onBegun?: (id: string) => void,
  ): Promise<Row[]> {
    return this.#run(async ({ $client: sql }) => {
      const settings = await this.#readSettings();
      const selectId = onBegun ? 'SELECT pg_current_xact_id() AS id' : '';
      const begin = sql.unsafe(`BEGIN ISOLATION LEVEL READ COMMITTED;${settings};${selectId}`);
      // Before the rest, so that an id is known even if no response arrives.
      if (onBegun) onBegun([await begin].flat(2).at(-1)?.id);
      const results = await Promise.all([begin, ...messages(sql)]);
      // An array of rows for each statement.
      return [results.at(-1) ?? []].flat(2);
    }, true);
  }

  async #readSettings(): Promise<string> {
    this.#settings ??= await settingsOfTransactions(this.#database.$client, this.#options);
    this.hasServed = true;
    return this.#settings;
  }

  /** Closes it. Statements that are still running after `timeout` seconds are cut off. */
  async close(timeout: number): Promise<void> {
    await this.#database.$client.end({ timeout });
    this.destroy();
  }

  /** Closes it at once. Its statements reject with `reason`. */
  destroy(reason: Error = this.#error('CONNECTION_ENDED', 'is not connected to any more')): void {
    clearTimeout(this.#silenceTimer);
    if (!this.failure) {
      this.failure = reason;
      endsOfConnections.add(reason);
      void this.#database.$client.end({ timeout: 0 });
      this.#options.onBroken?.(reason);
    }
    this.#socket?.destroy(reason);
  }

  /** @param isAlone whether no other query may run meanwhile, and the connection is closed if this one fails */
  async #run<T>(query: Query<T>, isAlone: boolean): Promise<T> {
    if (this.#isReserved || (isAlone && this.running > 0)) throw new Error('a transaction needs a connection alone');
    this.#isReserved = isAlone;
    if (this.running++ === 0 && this.#socket) this.#watchSilence();
    if (this.running >= (this.#options.queriesAtOnce ?? Number.POSITIVE_INFINITY)) this.hasRoom = false;
    try {
      return await query(this.#database);
    } catch (error) {
      // Not the error of a statement that followed the end of the connection.
      if (this.failure) throw this.failure;
      await this.#endOrReset(causeOf(error), isAlone);
      throw error;
    } finally {
      this.#isReserved = false;
      if (query !== empty && !this.failure) this.hasServed = true;
      if (--this.running === 0) this.hasRoom = true;
    }
  }

  async #endOrReset(cause: Error, isAlone: boolean): Promise<void> {
    const failure = failureOf(cause);
    // After a switch-over, this server is a standby, but the address may lead to the new primary.
    if (isOutage(failure) || failure === 'standby') return this.destroy(cause);
    if (isAlone) return this.close(0);
    // postgres.js counts the rows before an error with those of the next result, unless a statement without rows is between.
    if (cause instanceof postgres.PostgresError) empty(this.#database).then(null, (end) => this.destroy(end));
  }

  /** Opens the socket, as the option `socket` of postgres.js requires. @throws if it can't be opened, or was before */
  async #openSocket(): Promise<Socket> {
    if (this.failure) throw this.failure;
    const { endpoint, hostname, options, tls } = this.#address;
    try {
      const plain = this.#adopt(new Socket());
      plain.setNoDelay(true).connect(endpoint);
      this.#watchSilence();
      const isEncrypted = tls && (await agreeOnTls(plain, { ...tls, hostname }));
      const socket = isEncrypted ? this.#adopt(connectTls({ ...tls.options, socket: plain })) : plain;
      this.quietSince = performance.now();
      socket.on('data', () => (this.quietSince = performance.now()));
      const onEnd = () => this.destroy(closedError(hostname, this.#isLoggedIn ? '' : ' during the login'));
      socket.once('close', onEnd);
      // Later, since TLS has its own error for an end before it is established.
      socket.once('end', () => process.nextTick(onEnd));
      watchLogin(socket, this.#address, () => this.#onLogin());
      return Object.assign(socket, { host: hostname, port: options.port });
    } catch (error) {
      this.destroy(error as Error);
      throw this.failure;
    }
  }

  /**
   * Listens for the errors of a socket from its first moment: it may report one at any time. Before the driver listens, since
   * that would still send statements between an error and the end.
   */
  #adopt<T extends Socket>(socket: T): T {
    this.#socket = socket;
    return socket.on('error', (reason) => this.destroy(reason));
  }

  /** From here on, PostgreSQL cancels a statement at its time limit, if it has one. */
  #onLogin(): void {
    const { statementTimeout, mayBeSilent } = this.#options;
    this.#isLoggedIn = true;
    this.#maxSilenceMs =
      statementTimeout && !mayBeSilent ? statementTimeout + RESPONSE_MARGIN_MS : Number.POSITIVE_INFINITY;
    clearTimeout(this.#silenceTimer);
    this.#silenceTimer = undefined;
    this.#watchSilence();
  }

  /** Destroys the socket if the server sends nothing for `#maxSilenceMs` from now on, while a query runs. */
  #watchSilence(): void {
    this.quietSince = performance.now();
    this.#checkSilenceLater();
  }

  #checkSilenceLater(): void {
    const leftMs = this.quietSince + this.#maxSilenceMs - performance.now();
    if (leftMs === Number.POSITIVE_INFINITY) return;
    // After a stall of this process, a response may have arrived that has not been read yet.
    this.#silenceTimer ??= setTimeout(() => setImmediate(() => this.#checkSilence()), leftMs);
  }

  #checkSilence(): void {
    this.#silenceTimer = undefined;
    if (this.failure || this.running === 0) return;
    if (performance.now() < this.quietSince + this.#maxSilenceMs) this.#checkSilenceLater();
    else this.destroy(this.#error(this.#isLoggedIn ? SILENT : 'CONNECT_TIMEOUT', 'does not respond'));
  }

  #error(code: string, message: string): Error {
    return serverError(this.#address.hostname, code, message);
  }
}

/**
 * Returns the rows of a statement alone: after one that failed, awaiting it would include rows of that one (`#endOrReset`).
 *
 * The rows are moved to a new array: postgres.js assigns closures to properties, and V8 puts such closures where only a full
 * garbage collection finds them. Until then, they keep what they refer to, which is the first array.
 */
export async function rowsOf<T>(statement: { forEach(add: (row: T) => void): PromiseLike<unknown> }): Promise<T[]> {
  const rows: T[] = [];
  await statement.forEach((row) => void rows.push(row));
  return rows.splice(0);
}

/** Runs `use` with a connection, which is then closed. */
export async function withConnection<T>(
  url: string,
  use: (connection: Connection) => Promise<T>,
  limits: Limits = {},
): Promise<T> {
  const connection = new Connection(url, limits);
  try {
    return await use(connection);
  } finally {
    await connection.close(0);
  }
}

/** Runs a query on a new connection, within 5 s. */
export function queryOnce<T>(url: string, query: Query<T>): Promise<T> {
  return withConnection(url, (connection) => connection.run(query), QUERY_LIMITS);
}
