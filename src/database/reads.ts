/**
 * Reads from the database, each with a deadline. A read whose connection breaks is sent again until then, since reading
 * twice does no harm. While connections break and nothing is answered, only one read at a time is sent from time to time,
 * and those that have waited for two seconds are given up.
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
  UNABLE,
} from './errors.js';

/** Milliseconds between checks of the waiting reads. */
const CHECK_INTERVAL_MS = 50;
/** Milliseconds that a read waits for a database that can't be reached. */
const OUTAGE_WAIT_MS = 2000;
/** While nothing is answered: milliseconds between reads that are sent, and how many the driver may hold. */
const TRY_INTERVAL_MS = 300;
const MAX_TRIES = 4;

/** The part of an AbortSignal that queries use. */
export type Signal = Pick<AbortSignal, 'aborted' | 'throwIfAborted'>;

/** A query that only reads; once the signal is aborted, its result is no longer needed. */
type Query<T> = (signal: Signal) => PromiseLike<T>;

/** One read, which may be sent several times. A real AbortSignal is slower to create, and its event is not needed. */
class Read implements Signal {
  readonly since = performance.now();
  readonly query: Query<void>;
  readonly reject: (reason: Error) => void;
  aborted = false;
  isSent = false;
  sentAt = 0;

  constructor(query: Query<void>, reject: (reason: Error) => void) {
    this.query = query;
    this.reject = reject;
  }

  throwIfAborted(): void {
    if (this.aborted) throw tooLate();
  }
}

export class Reader {
  readonly #sockets: Database['sockets'];
  readonly #log: Log;
  readonly #metrics: Metrics;
  readonly #timer: NodeJS.Timeout;
  /**
   * Those that are not answered yet. Not a Set: V8 links the tables that a Set has outgrown, and through them each page that
   * was read would stay in memory until the next full garbage collection.
   */
  readonly #reads: Read[] = [];
  /** What the driver has, reads that were given up included, and when it got the last one. */
  readonly #sent: Read[] = [];
  #lastSent = 0;
  #lastAnswer = 0;
  /** Why the last connection broke, if nothing was answered since. */
  #failure: Error | undefined;
  #isDown = false;

  constructor({ sockets }: Database, log: Log, metrics: Metrics) {
    this.#sockets = sockets;
    this.#log = log;
    this.#metrics = metrics;
    this.#timer = setInterval(() => this.#check(), CHECK_INTERVAL_MS).unref();
  }

  /**
   * Runs `query`, which only reads, within `limitMs` milliseconds; then its signal is aborted, or as soon as `needed` rejects.
   * @throws {DatabaseUnavailable} when there is no answer in that time, or the database can't be reached or can't answer
   */
  async read<T>(query: Query<T>, limitMs: number, needed?: Promise<unknown>): Promise<T> {
    let read!: Read;
    const answer = new Promise<T>((resolve, reject) => {
      read = new Read((signal) => query(signal).then(resolve), reject);
      this.#reads.push(read);
      if (!this.#failure) void this.#send(read);
    });
    needed?.catch((reason) => {
      read.aborted = true;
      // What PostgreSQL works on is waited for.
      if (!read.isSent) read.reject(reason);
    });
    this.#metrics.queries(this.#reads.length);
    try {
      return await withDeadline(answer, limitMs, tooLate);
    } finally {
      read.aborted = true;
      this.#reads.splice(this.#reads.indexOf(read), 1);
      this.#metrics.queries(this.#reads.length);
    }
  }

  close(): void {
    clearInterval(this.#timer);
  }

  async #send(read: Read): Promise<void> {
    read.isSent = true;
    this.#sent.push(read);
    this.#lastSent = read.sentAt = performance.now();
    try {
      await read.query(read);
      this.#answered();
    } catch (error) {
      const reason = causeOf(error);
      if (isConnectionBroken(reason)) {
        read.isSent = false;
        // The first one that breaks is sent again at once.
        if (!this.#failure) this.#lastSent = 0;
        this.#failure = reason;
      } else {
        this.#answered();
        read.reject(this.#failureOf(reason));
      }
    } finally {
      this.#sent.splice(this.#sent.indexOf(read), 1);
    }
  }

  #answered(): void {
    this.#lastAnswer = performance.now();
    if (!this.#failure) return;
    this.#failure = undefined;
    if (this.#isDown) this.#log.info('the database answers again');
    this.#isDown = false;
    this.#check();
  }

  #check(): void {
    const now = performance.now();
    if (this.#sent.some(({ sentAt }) => now - sentAt > this.#sockets.answerLimitMs)) this.#sockets.overdue();
    const waiting = this.#reads.filter(({ isSent }) => !isSent);
    // All of them would fill the driver's queue, which it never empties while it can't connect.
    const isTooSoon = this.#sent.length >= MAX_TRIES || now - this.#lastSent < TRY_INTERVAL_MS;
    const next = this.#failure ? waiting.slice(0, isTooSoon ? 0 : 1) : waiting;
    for (const read of next) void this.#send(read);
    if (!this.#failure || now - this.#lastAnswer < OUTAGE_WAIT_MS) return;
    for (const read of this.#reads) if (now - read.since > OUTAGE_WAIT_MS) this.#giveUp(read, this.#failure);
  }

  #giveUp(read: Read, reason: Error): void {
    if (!this.#isDown)
      this.#log.error({ code: codeOf(reason), reason: reason.message }, 'the database does not answer');
    this.#isDown = true;
    read.reject(new DatabaseUnavailable("The database can't be reached."));
  }

  #failureOf(reason: Error): Error {
    const code = codeOf(reason);
    if (!UNABLE.test(code) && !NOT_MIGRATED.test(code) && !isRefusedByPooler(reason)) return reason;
    this.#log.warn({ code, reason: reason.message }, 'the database did not complete a statement');
    return new DatabaseUnavailable('The database could not answer.');
  }
}

function tooLate(): DatabaseUnavailable {
  return new DatabaseUnavailable('The database did not answer in time.');
}
