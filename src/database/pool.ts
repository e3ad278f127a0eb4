/** A pool of connections. One that breaks leaves the pool in that very event; another one is opened when it is needed. */
import { closeDatabase, type Database } from './connect.js';
import { codeOf } from './errors.js';
import { SILENT } from './socket.js';

/** Opens a connection, which calls `onBroken` when it breaks. */
export type Connect = (onBroken: (reason: Error) => void) => Database;

interface Options {
  /** The most connections. */
  size: number;
  /** The most queries that run on a connection at once. */
  queriesEach: number;
  /** Milliseconds from a failed attempt to open a connection to the next one. */
  retryMs: number;
  /** Called when a connection has been opened, or could not be opened. */
  onChange(): void;
}

export class Pool {
  readonly #connect: Connect;
  readonly #options: Options;
  readonly #open: Database[] = [];
  /** Connections that have got all the queries that they may have at once, until they are idle again. */
  readonly #full = new WeakSet<Database>();
  readonly #retired = new WeakSet<Database>();
  readonly #opening = new Set<Database>();
  /** When the next connection may be opened, by `performance.now()`. */
  #retryAt = 0;
  #hasFailed = false;
  #isClosed = false;
  /** Why no connection is open, unless `isConnected`; undefined before the first attempt has ended. */
  failure: Error | undefined;
  /** When the first of the open connections was opened, by `performance.now()`. */
  connectedAt = 0;

  constructor(connect: Connect, options: Options) {
    this.#connect = connect;
    this.#options = options;
  }

  get isConnected(): boolean {
    return this.#open.length > 0;
  }

  /** Whether a connection is being opened. */
  get isOpening(): boolean {
    return this.#opening.size > 0;
  }

  /**
   * Returns a connection for a query, which must begin at once and be awaited by the connection's socket. Without an idle
   * connection, begins to open another one, and returns one that has room. A connection that is full gets no queries until
   * it is idle, since PostgreSQL reads several at once faster than one by one.
   */
  take(): Database | undefined {
    const connection = this.#leastBusy();
    if (!connection || connection.socket.awaiting > 0) this.#grow();
    if (connection && connection.socket.awaiting + 1 >= this.#options.queriesEach) this.#full.add(connection);
    return connection;
  }

  /**
   * Closes a connection once its queries have ended, and sends it no others: one of them has failed. postgres.js does not
   * forget the rows that came before an error. The next result on the connection would begin with as many empty places.
   */
  retire(connection: Database): void {
    this.#retired.add(connection);
    this.#full.add(connection);
  }

  /** Closes a connection that is of no use. The next one is opened after the wait that follows a failed attempt. */
  discard(connection: Database, reason: Error): void {
    this.#waitToRetry();
    connection.socket.destroy(reason);
  }

  /** Closes the connections. Queries that are still running after `timeout` seconds are cut off. */
  async close(timeout: number): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this.#open, ...this.#opening].map((connection) => closeDatabase(connection, timeout)));
  }

  #leastBusy(): Database | undefined {
    let found: Database | undefined;
    for (const connection of this.#open) {
      const { awaiting } = connection.socket;
      if (awaiting === 0 && this.#retired.has(connection)) {
        connection.socket.destroy();
        return this.#leastBusy();
      }
      if (awaiting === 0) {
        this.#full.delete(connection);
        return connection;
      }
      if (!this.#full.has(connection) && !(found && found.socket.awaiting <= awaiting)) found = connection;
    }
    return found;
  }

  /** Begins to open another connection, if there may be one: one at a time after a failed attempt. */
  #grow(): void {
    const isFull = this.#open.length + this.#opening.size >= this.#options.size;
    const mustWait = this.#hasFailed && (this.isOpening || performance.now() < this.#retryAt);
    if (!isFull && !mustWait && !this.#isClosed) void this.#openOne();
  }

  /** Opens a connection and adds it. Never rejects. */
  async #openOne(): Promise<void> {
    const connection = this.#connect((reason) => this.#remove(connection, reason));
    const { $client, socket } = connection;
    this.#opening.add(connection);
    try {
      await socket.awaited($client.unsafe('SELECT'));
      if (socket.failure) throw socket.failure;
      this.#hasFailed = false;
      if (!this.isConnected) this.connectedAt = performance.now();
      this.#open.push(connection);
    } catch (error) {
      this.#waitToRetry();
      if (!this.isConnected) this.failure = error as Error;
      await closeDatabase(connection, 0);
    } finally {
      this.#opening.delete(connection);
    }
    this.#options.onChange();
  }

  #waitToRetry(): void {
    this.#hasFailed = true;
    this.#retryAt = performance.now() + this.#options.retryMs;
  }

  #remove(connection: Database, reason: Error): void {
    const index = this.#open.indexOf(connection);
    if (index < 0) return;
    this.#open.splice(index, 1);
    // It has only responded to the first statement: a query that breaks each connection must not open one after another.
    if (connection.socket.responses === 1) this.#waitToRetry();
    if (codeOf(reason) === SILENT) {
      // What cut it may have cut all connections that have been quiet for as long.
      const { quietSince } = connection.socket;
      for (const { socket } of [...this.#open]) if (socket.quietSince <= quietSince) socket.destroy(reason);
    }
    if (!this.isConnected) this.failure = reason;
  }
}
