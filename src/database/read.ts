/** A read of the queue (reads.ts). */
import type { Connection, Database } from './connection.js';
import { DatabaseUnavailable } from './errors.js';

/** The members of an AbortSignal that queries use. */
export type Signal = Pick<AbortSignal, 'throwIfAborted'>;

/** Sends statements that only read; their result is not needed once the signal is aborted. `connection` can run others later. */
export type Query<T> = (database: Database, signal: Signal, connection: Connection) => PromiseLike<T>;

/** A read, which may be sent several times, and also its query's signal: an AbortSignal takes longer to create. */
export class Read implements Signal {
  /** Since when it waits to be sent, by `performance.now()`. */
  #waitingSince = performance.now();
  /** By `performance.now()`. */
  readonly deadline: number;
  readonly result: Promise<unknown>;
  readonly #query: Query<unknown>;
  readonly #isNeeded: () => boolean;
  #settle = { resolve: (_result: unknown) => {}, reject: (_reason: Error) => {} };
  #isSettled = false;
  /** Whether its query is running. */
  isSent = false;
  /** Why its connection broke, if it did. */
  failure: Error | undefined;

  constructor(query: Query<unknown>, deadline: number, isNeeded: () => boolean) {
    this.#query = query;
    this.deadline = deadline;
    this.#isNeeded = isNeeded;
    this.result = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
  }

  /** Whether the result is no longer awaited. */
  get isAbandoned(): boolean {
    return this.#isSettled || !this.#isNeeded();
  }

  /** Returns whether it has waited to be sent for more than `limitMs` milliseconds since the time `from`. */
  hasWaited(limitMs: number, now: number, from = 0): boolean {
    return !this.isSent && now - Math.max(this.#waitingSince, from) > limitMs;
  }

  /** Makes it wait to be sent again, after its connection broke. */
  waitAgain(reason: Error): void {
    this.failure = reason;
    this.isSent = false;
    this.#waitingSince = performance.now();
  }

  /** Sends the query once. Resolves once `result` is settled; if the attempt fails, rejects and leaves it pending. */
  send(database: Database, connection: Connection): PromiseLike<void> {
    this.isSent = true;
    return this.#query(database, this, connection).then((result) => {
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

export const ABANDONED = new DatabaseUnavailable('The request was abandoned.');
