/**
 * Reads from the database that end in time. A read that a broken connection takes along is tried again, since reading
 * twice does no harm; one that is late, or for which there is no database, becomes the problem `unavailable`.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Database } from './database.js';
import { codeOf } from './errorCode.js';
import type { Log } from './log.js';
import type { Metrics } from './metrics.js';
import { unavailable } from './problem.js';

/** Milliseconds that a read may wait before the connections are looked into, and between two looks. */
const LONG_WAIT = 500;
const LOOK = 250;
/** Milliseconds without any answer, while reads wait, after which the connections count as silent. */
const SILENCE = 200;
/** Milliseconds for which a read is tried again while there is no database, and between two tries. */
const PERSISTENCE = 1000;
const PAUSE = 50;

/** What PostgreSQL, the driver and the system say when a connection broke or none is to be had. */
const BROKEN =
  /^(CONNECTION_(CLOSED|DESTROYED|ENDED)|CONNECT_TIMEOUT|ECONN\w+|EPIPE|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|57P0[1-5]|08\w{3}|53300)$/;
/** Statement cancelled, lock not to be had in time, no resources, no way in, in conflict with a replica's recovery. */
const UNABLE = /^(57014|55P03|55000|53\w{3}|58\w{3}|28\w{3}|3D000|40001|40P01)$/;

/** One read, however often it is tried. */
interface Reading {
  begin: number;
  isOver: boolean;
}

export class Reader {
  readonly #database: Database;
  readonly #log: Log;
  readonly #metrics: Metrics;
  readonly #watch: NodeJS.Timeout;
  readonly #waiting = new Set<{ since: number }>();
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
    const reading: Reading = { begin: performance.now(), isOver: false };
    let late: NodeJS.Timeout | undefined;
    const expiry = new Promise<never>((_resolve, reject) => {
      late = setTimeout(() => {
        // The database gives up statements before that, so a connection may be dead.
        void this.#renew();
        reject(unavailable('The database did not answer in time.'));
      }, limit);
    });
    try {
      return await Promise.race([this.#tryFor(query, reading), expiry]);
    } finally {
      clearTimeout(late);
      reading.isOver = true;
    }
  }

  close(): void {
    clearInterval(this.#watch);
  }

  async #tryFor<T>(query: () => PromiseLike<T>, reading: Reading): Promise<T> {
    while (!reading.isOver) {
      if (this.#isDown) await this.#awaitDatabase(reading);
      try {
        return await this.#try(query);
      } catch (error) {
        const reason = causeOf(error);
        if (UNABLE.test(codeOf(reason))) {
          this.#log.warn({ code: codeOf(reason), reason: reason.message }, 'the database gave up a statement');
          throw unavailable('The database could not answer.');
        }
        if (!BROKEN.test(codeOf(reason))) throw reason;
        if (!(await this.#renew())) {
          this.#report(reason);
          await this.#awaitDatabase(reading);
        }
        await sleep(PAUSE);
      }
    }
    throw unavailable('The database did not answer in time.');
  }

  /** While there is no database, nobody queues for its connections. */
  async #awaitDatabase(reading: Reading): Promise<void> {
    while (!reading.isOver && !(await this.#renew())) {
      if (performance.now() - reading.begin > PERSISTENCE) throw unavailable('The database does not answer.');
      await sleep(PAUSE);
    }
  }

  async #try<T>(query: () => PromiseLike<T>): Promise<T> {
    // A silence begins with the first that waits.
    if (this.#waiting.size === 0) this.#lastAnswer = performance.now();
    const attempt = { since: performance.now() };
    this.#waiting.add(attempt);
    this.#metrics.queries(this.#waiting.size);
    try {
      const answer = await query();
      this.#answered();
      return answer;
    } catch (error) {
      if (!BROKEN.test(codeOf(causeOf(error)))) this.#answered();
      throw error;
    } finally {
      this.#waiting.delete(attempt);
      this.#metrics.queries(this.#waiting.size);
    }
  }

  #look(): void {
    // A set is in the order of its insertions.
    const [oldest] = this.#waiting;
    if (oldest && performance.now() - oldest.since > LONG_WAIT) void this.#renew();
  }

  /** Whether there is a database, which from now on is known. */
  async #renew(): Promise<boolean> {
    const waiting = this.#waiting.size;
    const isSilent = waiting > 0 && performance.now() - this.#lastAnswer > SILENCE;
    const isThere = await this.#database.renew({ waiting, isSilent });
    if (isThere) this.#recovered();
    return isThere;
  }

  #answered(): void {
    this.#lastAnswer = performance.now();
    this.#recovered();
  }

  #recovered(): void {
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
