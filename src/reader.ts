/**
 * Reads from the database that end in time. A read that a broken connection takes along is tried again, since reading
 * twice does no harm; one that is late, or for which there is no database, becomes the problem `unavailable`.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Database } from './database.js';
import type { Log } from './log.js';
import type { Metrics } from './metrics.js';
import { unavailable } from './problem.js';

/** Milliseconds without any answer, while reads wait, after which the connections are looked into. */
const SILENCE = 500;
const LOOK = 100;
/** Milliseconds for which a read is tried again while there is no database, and between two tries. */
const PERSISTENCE = 1000;
const PAUSE = 50;

/** What PostgreSQL, the driver and the system say when a connection broke or none is to be had. */
const BROKEN =
  /^(CONNECTION_(CLOSED|DESTROYED|ENDED)|CONNECT_TIMEOUT|ECONN\w+|EPIPE|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|57P0[1-5]|08\w{3}|53300)$/;
/** Statement cancelled, lock not to be had in time, no resources, no way in, in conflict with a replica's recovery. */
const UNABLE = /^(57014|55P03|55000|53\w{3}|58\w{3}|28\w{3}|3D000|40001|40P01)$/;

export class Reader {
  readonly #database: Database;
  readonly #log: Log;
  readonly #metrics: Metrics;
  readonly #watch: NodeJS.Timeout;
  #waiting = 0;
  #lastAnswer = performance.now();
  #isDown = false;

  constructor(database: Database, log: Log, metrics: Metrics) {
    this.#database = database;
    this.#log = log;
    this.#metrics = metrics;
    this.#watch = setInterval(() => this.#look(), LOOK).unref();
  }

  /**
   * Runs `query`, which only reads, within `limit` ms.
   * @throws the problem `unavailable`, when it can't be had in that time
   */
  async read<T>(query: () => PromiseLike<T>, limit: number): Promise<T> {
    const late = new AbortController();
    const expiry = sleep(limit, undefined, { signal: late.signal }).then(() => {
      // The database gives up statements before that, so a connection may be dead.
      void this.#renew();
      throw unavailable('The database did not answer in time.');
    });
    expiry.catch(() => {});
    try {
      return await Promise.race([this.#tryFor(query, late.signal), expiry]);
    } finally {
      late.abort();
    }
  }

  close(): void {
    clearInterval(this.#watch);
  }

  async #tryFor<T>(query: () => PromiseLike<T>, given: AbortSignal): Promise<T> {
    const begin = performance.now();
    for (;;) {
      try {
        return await this.#try(query);
      } catch (error) {
        const reason = causeOf(error);
        if (UNABLE.test(codeOf(reason))) {
          this.#log.warn({ code: codeOf(reason), reason: reason.message }, 'the database gave up a statement');
          throw unavailable('The database could not answer.');
        }
        if (!BROKEN.test(codeOf(reason)) || given.aborted) throw reason;
        const isThere = await this.#renew();
        if (!isThere) this.#report(reason);
        if (!isThere && performance.now() - begin > PERSISTENCE) throw unavailable('The database does not answer.');
        await sleep(PAUSE);
      }
    }
  }

  async #try<T>(query: () => PromiseLike<T>): Promise<T> {
    // The silence begins with the first that waits.
    if (this.#waiting === 0) this.#lastAnswer = performance.now();
    this.#metrics.queries(++this.#waiting);
    try {
      const answer = await query();
      this.#answered();
      return answer;
    } catch (error) {
      if (!BROKEN.test(codeOf(causeOf(error)))) this.#answered();
      throw error;
    } finally {
      this.#metrics.queries(--this.#waiting);
    }
  }

  #look(): void {
    if (this.#waiting === 0 || performance.now() - this.#lastAnswer < SILENCE) return;
    void this.#renew();
  }

  #renew(): Promise<boolean> {
    return this.#database.renew(this.#waiting > 0);
  }

  #answered(): void {
    this.#lastAnswer = performance.now();
    if (!this.#isDown) return;
    this.#isDown = false;
    this.#log.info('the database answers again');
  }

  /** Once an outage. */
  #report(reason: Error): void {
    if (this.#isDown) return;
    this.#isDown = true;
    this.#log.error({ code: codeOf(reason), reason: reason.message }, 'the database does not answer');
  }
}

/** What the database or the driver said. Drizzle's wrapping holds the statement and its values, which no log should. */
export function causeOf(error: unknown): Error {
  const { cause } = error as { cause?: unknown };
  if (cause instanceof Error) return causeOf(cause);
  return error instanceof Error ? error : new Error(String(error));
}

function codeOf(error: Error): string {
  const { code } = error as { code?: unknown };
  return typeof code === 'string' ? code : '';
}
