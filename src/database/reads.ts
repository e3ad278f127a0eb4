/**
 * The queue in front of PostgreSQL: reads, each with a deadline.
 *
 * # Order
 *
 * A few reads at once are sent on each connection, in order of arrival. A read that is sent can't be taken back, so the rest
 * wait here: a read that is late or no longer needed is never sent, and one that can't be sent within half a second is
 * rejected. Otherwise an overloaded database would spend its time on requests whose clients have gone.
 *
 * # If connections break
 *
 * A read whose connection breaks is sent on another one, until its deadline; reading twice does no harm. During an outage,
 * when no connection can be opened, an attempt is made every 0.3 s, and each read is rejected after two seconds.
 */
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import type { Connection, Database } from './connection.js';
import { causeOf, codeOf, DatabaseUnavailable, failureOf, isOutage, reasonOf } from './errors.js';
import { type Connect, Pool } from './pool.js';

/** Milliseconds between checks for reads that can be sent, are late, are no longer needed, or have waited for too long. */
const CHECK_INTERVAL_MS = 50;
/** If a read were rejected at once, its client would retry at once, and rejecting would take most of the CPU time. */
const QUEUE_WAIT_MS = 500;
/** The longest time that a read waits for a database that can't be reached, in milliseconds. */
const OUTAGE_WAIT_MS = 2000;
/** Milliseconds between attempts to open a connection during an outage. */
const ATTEMPT_INTERVAL_MS = 300;
const BUSY = 'Too many requests are being processed.';
const ABANDONED = new DatabaseUnavailable('The request was abandoned.');
/** The most reads that are sent at once on each connection. With one, a connection idles while its response is processed. */
const MAX_READS_PER_CONNECTION = 4;

/**
 * Returns how many reads may be sent at once on each connection, so that all of them can end within the time limit of a
 * request, `requestMs`, even if each statement takes its whole time limit, `statementMs`.
 */
export function readsPerConnection(requestMs: number, statementMs: number): number {
  const fitting = Math.floor((requestMs - QUEUE_WAIT_MS) / statementMs);
  return Math.min(MAX_READS_PER_CONNECTION, Math.max(1, fitting));
}

export type Signal = Pick<AbortSignal, 'throwIfAborted'>;

/** Sends statements that only read; their result is not needed once the signal is aborted. */
export type Query<T> = (database: Database, signal: Signal) => PromiseLike<T>;

/** A read, which may be sent several times, and also its query's signal: an AbortSignal takes longer to create. */
class Read implements Signal {
  /** Since when it waits to be sent, by `performance.now()`. */
  #waitingSince = performance.now();
  /** By `performance.now()`. */
  readonly deadline: number;
  readonly result: Promise<unknown>;
  readonly #query: Query<unknown>;
  readonly #isNeeded: () => boolean;
  #settle!: { resolve(result: unknown): void; reject(reason: Error): void };
  #isSettled = false;
  isSent = false;
  brokenBy: Error | undefined;

  constructor(query: Query<unknown>, deadline: number, isNeeded: () => boolean) {
    this.#query = query;
    this.deadline = deadline;
    this.#isNeeded = isNeeded;
    this.result = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
  }

  get isAbandoned(): boolean {
    return this.#isSettled || !this.#isNeeded();
  }

  waitedMs(now: number): number {
    return this.isSent ? 0 : now - this.#waitingSince;
  }

  waitAgain(reason: Error): void {
    this.brokenBy = reason;
    this.isSent = false;
    this.#waitingSince = performance.now();
  }

  /** Sends the query once. Resolves once `result` is settled; if the attempt fails, rejects and leaves it pending. */
  send(database: Database): PromiseLike<void> {
    this.isSent = true;
    return this.#query(database, this).then((result) => {
      this.#isSettled = true;
      this.#settle.resolve(result);
    });
  }

  reject(reason: Error): void {
    this.#isSettled = true;
    this.#settle.reject(reason);
  }

  throwIfAborted(): void {
    if (this.isAbandoned) throw ABANDONED;
  }
}

/** Runs queries that only read, on a pool of connections. */
export class Reader {
  readonly #pool: Pool;
  readonly #log: Log;
  readonly #metrics: Pick<Metrics, 'setQueries'>;
  readonly #timer: NodeJS.Timeout;
  /**
   * Reads that have no result yet, in the order in which they are sent. A Set would keep each page that was read in memory
   * until the next full garbage collection, because V8 keeps links between the tables that a Set has outgrown.
   */
  readonly #pending: Read[] = [];
  #isOutageLogged = false;

  /** Creates a reader on at most `size` connections. */
  constructor(connect: Connect, size: number, log: Log, metrics: Pick<Metrics, 'setQueries'>) {
    this.#pool = new Pool(connect, { size, retryMs: ATTEMPT_INTERVAL_MS, onChange: () => this.#sendWaiting() });
    this.#log = log;
    this.#metrics = metrics;
    // After a stall of this process, responses that have arrived are read before setImmediate runs.
    this.#timer = setInterval(() => setImmediate(() => this.#check()), CHECK_INTERVAL_MS);
  }

  get isConnected(): boolean {
    return this.#pool.isConnected;
  }

  /**
   * Runs `query` until `deadline`, by `performance.now()`. A read that is no longer needed is dropped if it has not been
   * sent, and sends no further statement if it has.
   * @param isFirst whether to send it before all reads that wait
   * @throws {DatabaseUnavailable} if there is no result in time, too many reads wait, the database can't be reached, or a
   *   statement fails for lack of resources, privileges or migrations
   */
  async read<T>(
    query: Query<T>,
    deadline: number,
    { isNeeded = () => true, isFirst = false }: { isNeeded?: () => boolean; isFirst?: boolean } = {},
  ): Promise<T> {
    const read = new Read(query, deadline, isNeeded);
    if (isFirst) this.#pending.unshift(read);
    else this.#pending.push(read);
    this.#metrics.setQueries(this.#pending.length);
    this.#sendWaiting();
    try {
      return (await read.result) as T;
    } finally {
      this.#pending.splice(this.#pending.indexOf(read), 1);
      this.#metrics.setQueries(this.#pending.length);
    }
  }

  /** Closes the connections. Statements that are still running after `timeout` seconds are cut off. */
  async close(timeout: number): Promise<void> {
    clearInterval(this.#timer);
    await this.#pool.close(timeout);
  }

  #sendWaiting(): void {
    for (const read of this.#pending) {
      if (read.isSent || read.isAbandoned) continue;
      const connection = this.#pool.take();
      if (!connection) return;
      void this.#send(read, connection);
    }
  }

  /** Never rejects: a read whose connection breaks waits again. */
  async #send(read: Read, connection: Connection): Promise<void> {
    try {
      await connection.run((database) => read.send(database));
      if (this.#isOutageLogged) this.#log.info('the database responds again');
      this.#isOutageLogged = false;
    } catch (error) {
      const reason = causeOf(error);
      if (isOutage(failureOf(reason))) read.waitAgain(reason);
      else read.reject(this.#errorFor(reason));
    }
    this.#sendWaiting();
  }

  #check(): void {
    const now = performance.now();
    for (const read of this.#pending) {
      const reason = this.#reasonToReject(read, now);
      if (reason) read.reject(reason);
    }
    this.#sendWaiting();
  }

  #reasonToReject(read: Read, now: number): Error | undefined {
    const { isConnected, connectedAt, failure } = this.#pool;
    if (now >= read.deadline) {
      // While the pool is connected, an outage is known only if the read's own connection broke.
      return this.#unavailable('The database did not respond in time.', isConnected ? read.brokenBy : failure);
    }
    if (read.isAbandoned) return ABANDONED;
    if (isConnected) {
      // Without the time in which no connection was open: OUTAGE_WAIT_MS limits that.
      const queuedMs = Math.min(read.waitedMs(now), now - connectedAt);
      return queuedMs > QUEUE_WAIT_MS ? new DatabaseUnavailable(BUSY) : undefined;
    }
    // Without a failure, the first attempt is in progress.
    const isOverdue = failure && read.waitedMs(now) > OUTAGE_WAIT_MS;
    return isOverdue ? this.#unavailable("The database can't be reached.", failure) : undefined;
  }

  /** Returns the error of a read that had no response. Logs the beginning of an outage. */
  #unavailable(message: string, outage: Error | undefined): Error {
    if (outage && !this.#isOutageLogged) {
      this.#log.error({ code: codeOf(outage), reason: reasonOf(outage) }, 'the database does not respond');
      this.#isOutageLogged = true;
    }
    return new DatabaseUnavailable(message, { cause: outage });
  }

  #errorFor(reason: Error): Error {
    if (failureOf(reason) === 'ours') return reason;
    this.#log.warn({ code: codeOf(reason), reason: reasonOf(reason) }, 'the database did not complete a statement');
    return new DatabaseUnavailable('The database could not run the query.', { cause: reason });
  }
}
