/**
 * Reads from the database, each with a deadline.
 *
 * # If connections break
 *
 * A read whose connection breaks is retried until its deadline; reading twice does no harm. During an outage, when
 * connections break and no read succeeds, reads are sent one at a time to probe the database, and each is rejected
 * after two seconds.
 */
import { withDeadline } from '../deadline.js';
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import type { Database } from './connect.js';
import {
  causeOf,
  codeOf,
  DatabaseUnavailable,
  isConnectionBroken,
  isRefusedByPooler,
  NOT_MIGRATED,
  TEMPORARY_FAILURE,
} from './errors.js';

/** Milliseconds between checks for reads that can be sent, are overdue, or have waited for too long. */
const CHECK_INTERVAL_MS = 50;
/** The longest time that a read waits for a database that can't be reached, in milliseconds. */
const OUTAGE_WAIT_MS = 2000;
/** During an outage: milliseconds between attempts, and the most reads that may be queued in the driver. */
const ATTEMPT_INTERVAL_MS = 300;
const MAX_QUEUED = 4;

/** The members of an AbortSignal that queries use. */
export type Signal = Pick<AbortSignal, 'aborted' | 'throwIfAborted'>;

/** Sends statements that only read; their result is not needed once the signal is aborted. */
type Query<T> = (signal: Signal) => PromiseLike<T>;

/** A read, which may be sent several times, and also its query's signal: an AbortSignal takes longer to create. */
class Read implements Signal {
  readonly startedAt = performance.now();
  readonly result: Promise<unknown>;
  readonly #query: Query<unknown>;
  #resolve: (result: unknown) => void = () => {};
  reject: (reason: Error) => void = () => {};
  aborted = false;
  isSent = false;
  sentAt = 0;

  constructor(query: Query<unknown>) {
    this.#query = query;
    this.result = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.reject = reject;
    });
  }

  /** Sends the query once. Resolves once `result` is settled; if the attempt fails, rejects and leaves it pending. */
  send(): PromiseLike<void> {
    return this.#query(this).then(this.#resolve);
  }

  throwIfAborted(): void {
    if (this.aborted) throw timeoutError();
  }
}

/** Runs queries that only read, on the connections of a database. */
export class Reader {
  readonly #sockets: Database['sockets'];
  readonly #log: Log;
  readonly #metrics: Metrics;
  readonly #timer: NodeJS.Timeout;
  /**
   * Reads that have no result yet. A Set would keep each page that was read in memory until the next full garbage
   * collection, because V8 keeps links between the tables that a Set has outgrown.
   */
  readonly #pending: Read[] = [];
  /** Reads queued in the driver, including abandoned ones. */
  readonly #queued: Read[] = [];
  /** The earliest time of the next attempt during an outage, by `performance.now()`. */
  #nextAttemptAt = 0;
  /** When the database last responded, by `performance.now()`. */
  #lastResponseAt = 0;
  /** Why the last connection broke, if the database has not responded since. */
  #failure: Error | undefined;
  /** Whether the outage is in the log. */
  #isOutageLogged = false;

  constructor({ sockets }: Database, log: Log, metrics: Metrics) {
    this.#sockets = sockets;
    this.#log = log;
    this.#metrics = metrics;
    this.#timer = setInterval(() => this.#check(), CHECK_INTERVAL_MS).unref();
  }

  /**
   * Runs `query` within `limitMs` milliseconds. Its signal is aborted when the time is up, or when `needed` rejects.
   * @throws {DatabaseUnavailable} if there is no result in time, the database can't be reached, or a statement fails
   *   for lack of resources, privileges or migrations
   */
  async read<T>(query: Query<T>, limitMs: number, needed?: Promise<unknown>): Promise<T> {
    const read = new Read(query);
    this.#pending.push(read);
    if (!this.#failure) void this.#send(read);
    needed?.catch((reason) => {
      read.aborted = true;
      // A statement that PostgreSQL is executing is not canceled.
      if (!read.isSent) read.reject(reason);
    });
    this.#metrics.setQueries(this.#pending.length);
    try {
      return (await withDeadline(read.result, limitMs, timeoutError)) as T;
    } finally {
      read.aborted = true;
      this.#pending.splice(this.#pending.indexOf(read), 1);
      this.#metrics.setQueries(this.#pending.length);
    }
  }

  close(): void {
    clearInterval(this.#timer);
  }

  /** Sends a read. Never rejects: a read whose connection breaks stays pending. */
  async #send(read: Read): Promise<void> {
    read.isSent = true;
    this.#queued.push(read);
    read.sentAt = performance.now();
    this.#nextAttemptAt = read.sentAt + ATTEMPT_INTERVAL_MS;
    try {
      await read.send();
      this.#recordResponse();
    } catch (error) {
      const reason = causeOf(error);
      if (isConnectionBroken(reason)) {
        read.isSent = false;
        // At the beginning of an outage, the first attempt is made at once.
        if (!this.#failure) this.#nextAttemptAt = performance.now();
        this.#failure = reason;
      } else {
        this.#recordResponse();
        read.reject(this.#errorFor(reason));
      }
    } finally {
      this.#queued.splice(this.#queued.indexOf(read), 1);
    }
  }

  /** Records that the database has responded, if only with an error, which ends an outage. */
  #recordResponse(): void {
    this.#lastResponseAt = performance.now();
    if (!this.#failure) return;
    this.#failure = undefined;
    if (this.#isOutageLogged) this.#log.info('the database responds again');
    this.#isOutageLogged = false;
    this.#check();
  }

  #check(): void {
    const now = performance.now();
    if (this.#queued.some(({ sentAt }) => now - sentAt > this.#sockets.responseLimitMs))
      this.#sockets.reconnectIfSilent();
    const unsent = this.#pending.filter(({ isSent }) => !isSent);
    // Sending every read would fill the driver's queue, which it never empties while it can't connect.
    const mayAttempt = this.#queued.length < MAX_QUEUED && now >= this.#nextAttemptAt;
    const next = this.#failure ? unsent.slice(0, mayAttempt ? 1 : 0) : unsent;
    for (const read of next) void this.#send(read);
    if (!this.#failure || now - this.#lastResponseAt < OUTAGE_WAIT_MS) return;
    for (const read of this.#pending) if (now - read.startedAt > OUTAGE_WAIT_MS) this.#giveUp(read, this.#failure);
  }

  #giveUp(read: Read, reason: Error): void {
    if (!this.#isOutageLogged)
      this.#log.error({ code: codeOf(reason), reason: reason.message }, 'the database does not respond');
    this.#isOutageLogged = true;
    read.reject(new DatabaseUnavailable("The database can't be reached."));
  }

  /** Returns the error of a read whose statement failed because of `reason`. */
  #errorFor(reason: Error): Error {
    const code = codeOf(reason);
    if (!TEMPORARY_FAILURE.test(code) && !NOT_MIGRATED.test(code) && !isRefusedByPooler(reason)) return reason;
    this.#log.warn({ code, reason: reason.message }, 'the database did not complete a statement');
    return new DatabaseUnavailable('The database could not run the query.');
  }
}

function timeoutError(): DatabaseUnavailable {
  return new DatabaseUnavailable('The database did not respond in time.');
}
