/**
 * The queue in front of PostgreSQL: reads, each with a deadline.
 *
 * # Order
 *
 * A few reads at once are sent for each connection, in order of arrival. A read that is sent can't be taken back, so the rest
 * wait here: a read that is late or no longer needed is never sent, and one that can't be sent within half a second is
 * rejected. Otherwise an overloaded database would spend its time on requests whose clients have gone.
 *
 * # If connections break
 *
 * A read whose connection breaks is retried until its deadline; reading twice does no harm. During an outage, when
 * connections break and no read succeeds, one read is sent every 0.3 s to probe the database, and each is rejected after
 * two seconds.
 */
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import type { Database } from './connect.js';
import { causeOf, codeOf, DatabaseUnavailable, failureOf, isOutage, reasonOf } from './errors.js';

/** Milliseconds between checks for reads that can be sent, are late, are no longer needed, or have waited for too long. */
const CHECK_INTERVAL_MS = 50;
/**
 * The longest time that a read waits to be sent. If it were rejected at once, its client would retry at once, and rejecting
 * requests would take most of the CPU time.
 */
const QUEUE_WAIT_MS = 500;
/** The longest time that a read waits for a database that can't be reached, in milliseconds. */
const OUTAGE_WAIT_MS = 2000;
/** Milliseconds between attempts during an outage. */
const ATTEMPT_INTERVAL_MS = 300;
/** The most reads that are sent at once for each connection. With one, a connection idles while its response is processed. */
const MAX_READS_PER_CONNECTION = 4;

/**
 * Returns how many reads may be sent at once for each connection, so that all of them can end within the time limit of a
 * request, `requestMs`, even if each statement takes its whole time limit, `statementMs`.
 */
export function readsPerConnection(requestMs: number, statementMs: number): number {
  const fitting = Math.floor((requestMs - QUEUE_WAIT_MS) / statementMs);
  return Math.min(MAX_READS_PER_CONNECTION, Math.max(1, fitting));
}

/** The members of an AbortSignal that queries use. */
export type Signal = Pick<AbortSignal, 'throwIfAborted'>;

/** Sends statements that only read; their result is not needed once the signal is aborted. */
type Query<T> = (signal: Signal) => PromiseLike<T>;

/** A read, which may be sent several times, and also its query's signal: an AbortSignal takes longer to create. */
class Read implements Signal {
  readonly startedAt = performance.now();
  /** By `performance.now()`. */
  readonly deadline: number;
  readonly result: Promise<unknown>;
  readonly #query: Query<unknown>;
  readonly #isNeeded: () => boolean;
  #settle = { resolve: (_result: unknown) => {}, reject: (_reason: Error) => {} };
  #isSettled = false;
  isSent = false;

  constructor(query: Query<unknown>, deadline: number, isNeeded: () => boolean) {
    this.#query = query;
    this.deadline = deadline;
    this.#isNeeded = isNeeded;
    this.result = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
  }

  /** Whether nobody waits for the result. */
  get isAbandoned(): boolean {
    return this.#isSettled || !this.#isNeeded();
  }

  /** Sends the query once. Resolves once `result` is settled; if the attempt fails, rejects and leaves it pending. */
  send(): PromiseLike<void> {
    return this.#query(this).then((result) => {
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

const ABANDONED = new DatabaseUnavailable('The request was abandoned.');

/** Runs queries that only read, on the connections of a database. */
export class Reader {
  readonly #sockets: Database['sockets'];
  readonly #log: Log;
  readonly #metrics: Pick<Metrics, 'setQueries'>;
  readonly #maxSent: number;
  readonly #timer: NodeJS.Timeout;
  /**
   * Reads that have no result yet, in the order in which they are sent. A Set would keep each page that was read in memory
   * until the next full garbage collection, because V8 keeps links between the tables that a Set has outgrown.
   */
  readonly #pending: Read[] = [];
  /** Reads in the driver, including abandoned ones. */
  readonly #sent: Read[] = [];
  /** The earliest time of the next attempt during an outage, by `performance.now()`. */
  #nextAttemptAt = 0;
  /** When the database last responded, by `performance.now()`. */
  #lastResponseAt = 0;
  /** When the last outage ended, by `performance.now()`. */
  #outageEndedAt = 0;
  /** Why the last connection broke, if the database has not responded since. */
  #failure: Error | undefined;
  /** Whether the outage is in the log. */
  #isOutageLogged = false;

  /** Creates a reader that sends at most `maxSent` reads at once. */
  constructor({ sockets }: Pick<Database, 'sockets'>, log: Log, metrics: Pick<Metrics, 'setQueries'>, maxSent: number) {
    this.#sockets = sockets;
    this.#log = log;
    this.#metrics = metrics;
    this.#maxSent = maxSent;
    // After a stall of this process, responses that have arrived are read before setImmediate runs.
    this.#timer = setInterval(() => setImmediate(() => this.#check()), CHECK_INTERVAL_MS);
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

  close(): void {
    clearInterval(this.#timer);
  }

  /** Sends the reads whose turn it is; during an outage, one per interval. */
  #sendWaiting(): void {
    for (const read of this.#pending) {
      if (this.#sent.length >= this.#maxSent || (this.#failure && performance.now() < this.#nextAttemptAt)) return;
      if (!read.isSent && !read.isAbandoned) void this.#send(read);
    }
  }

  /** Sends a read. Never rejects: a read whose connection breaks waits again. */
  async #send(read: Read): Promise<void> {
    read.isSent = true;
    this.#sent.push(read);
    this.#nextAttemptAt = performance.now() + ATTEMPT_INTERVAL_MS;
    try {
      await this.#sockets.awaited(read.send());
      this.#recordResponse();
    } catch (error) {
      const reason = causeOf(error);
      if (isOutage(failureOf(reason))) {
        read.isSent = false;
        // At the beginning of an outage, the first attempt is made at once.
        if (!this.#failure) this.#nextAttemptAt = performance.now();
        this.#failure = reason;
      } else {
        this.#recordResponse();
        read.reject(this.#errorFor(reason));
      }
    }
    this.#sent.splice(this.#sent.indexOf(read), 1);
    this.#sendWaiting();
  }

  /** Records that the database has responded, if only with an error, which ends an outage. */
  #recordResponse(): void {
    this.#lastResponseAt = performance.now();
    if (!this.#failure) return;
    this.#failure = undefined;
    this.#outageEndedAt = this.#lastResponseAt;
    if (this.#isOutageLogged) this.#log.info('the database responds again');
    this.#isOutageLogged = false;
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
    if (now >= read.deadline)
      return new DatabaseUnavailable('The database did not respond in time.', { cause: this.#failure });
    if (!read.isSent && read.isAbandoned) return ABANDONED;
    if (this.#failure) {
      const hasWaited = now - Math.max(read.startedAt, this.#lastResponseAt) > OUTAGE_WAIT_MS;
      return hasWaited ? this.#outageError(this.#failure) : undefined;
    }
    const hasWaited = !read.isSent && now - Math.max(read.startedAt, this.#outageEndedAt) > QUEUE_WAIT_MS;
    return hasWaited ? new DatabaseUnavailable('Too many requests are being processed.') : undefined;
  }

  #outageError(reason: Error): Error {
    if (!this.#isOutageLogged)
      this.#log.error({ code: codeOf(reason), reason: reasonOf(reason) }, 'the database does not respond');
    this.#isOutageLogged = true;
    return new DatabaseUnavailable("The database can't be reached.", { cause: reason });
  }

  /** Returns the error of a read whose statement failed because of `reason`. */
  #errorFor(reason: Error): Error {
    if (failureOf(reason) === 'ours') return reason;
    this.#log.warn({ code: codeOf(reason), reason: reasonOf(reason) }, 'the database did not complete a statement');
    return new DatabaseUnavailable('The database could not run the query.', { cause: reason });
  }
}
