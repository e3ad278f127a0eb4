/** A pool of connections. One that breaks leaves the pool in that very event; another one is opened when it is needed. */
import { type Connection, SILENT } from './connection.js';
import { codeOf } from './errors.js';

export type Connect = (onBroken: (reason: Error) => void) => Connection;

interface Options {
  size: number;
  /** Milliseconds from a failed attempt to open a connection to the next one. */
  retryMs: number;
  /** Called when a connection has been opened, or could not be opened. */
  onChange?(): void;
}

export class Pool {
  readonly #connect: Connect;
  readonly #options: Options;
  readonly #open: Connection[] = [];
  readonly #opening = new Set<Connection>();
  #latestAttempt: Promise<void> | undefined;
  /** When the next attempt may begin, by `performance.now()`, if the latest one failed; undefined if it succeeded. */
  #retryAt: number | undefined;
  #isClosed = false;
  /** Why no connection is open; undefined before the first attempt has ended. Out of date while one is open. */
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

  get isOpening(): boolean {
    return this.#opening.size > 0;
  }

  /** Returns the connection with the fewest queries that has room for another. If none is idle, begins to open another one. */
  take(): Connection | undefined {
    let found: Connection | undefined;
    for (const connection of this.#open) {
      if (connection.hasRoom && (!found || connection.running < found.running)) found = connection;
    }
    if (!found || found.running > 0) this.#grow();
    return found;
  }

  /** Like `take`, but if no connection is open, waits for the attempt to open one. */
  async takeOpened(): Promise<Connection | undefined> {
    const connection = this.take();
    if (connection || !this.isOpening) return connection;
    await this.#latestAttempt;
    return this.take();
  }

  /** Closes the connections. Queries that are still running after `timeout` seconds are cut off. */
  async close(timeout: number): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this.#open, ...this.#opening].map((connection) => connection.close(timeout)));
  }

  /** Begins to open another connection, unless the pool is full or closed. After a failed attempt, one is made at a time. */
  #grow(): void {
    const isFull = this.#open.length + this.#opening.size >= this.#options.size;
    const mustWait = this.#retryAt !== undefined && (this.isOpening || performance.now() < this.#retryAt);
    if (!isFull && !mustWait && !this.#isClosed) this.#latestAttempt = this.#attempt();
  }

  /** Never rejects. */
  async #attempt(): Promise<void> {
    try {
      const connection = this.#connect((reason) => this.#remove(connection, reason));
      this.#opening.add(connection);
      try {
        await connection.open();
        if (!this.isConnected) this.connectedAt = performance.now();
        this.#open.push(connection);
      } finally {
        this.#opening.delete(connection);
      }
      this.#retryAt = undefined;
    } catch (error) {
      this.#waitToRetry();
      if (!this.isConnected) this.failure = error as Error;
    }
    this.#options.onChange?.();
  }

  #waitToRetry(): void {
    this.#retryAt = performance.now() + this.#options.retryMs;
  }

  #remove(connection: Connection, reason: Error): void {
    const index = this.#open.indexOf(connection);
    if (index < 0) return;
    this.#open.splice(index, 1);
    // Its first query broke it. If that query breaks each connection, they must not be opened one right after the other.
    if (!connection.hasServed && connection.running > 0) this.#waitToRetry();
    if (codeOf(reason) === SILENT) {
      // What cut it may have cut all connections that have been quiet for as long.
      const quiet = this.#open.filter(({ quietSince }) => quietSince <= connection.quietSince);
      for (const other of quiet) other.destroy(reason);
    }
    if (!this.isConnected) this.failure = reason;
  }
}
