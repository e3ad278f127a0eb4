/**
 * Reads from the database that end in time. A read that fails with its connection is tried again, since reading twice
 * does no harm; one that is late, or for which there is no database, rejects with `DatabaseUnavailable`.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { withDeadline } from '../deadline.js';
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import type { Database } from './connect.js';
import { causeOf, codeOf, DatabaseUnavailable, LACKING, TOO_MANY_CONNECTIONS } from './errors.js';

/** Milliseconds that an attempt may wait before the connections are checked, and between two checks. */
const LONG_WAIT_MS = 500;
const CHECK_INTERVAL_MS = 250;
/** Milliseconds without any answer, while attempts wait, after which the connections count as silent. */
const SILENT_AFTER_MS = 200;
/** Milliseconds for which a read is tried again while there is no database, and between two tries. */
const RETRY_LIMIT_MS = 1000;
const RETRY_DELAY_MS = 50;

/** The codes of PostgreSQL, the driver and the system for a connection that broke or can't be opened. */
const BROKEN =
  /^(CONNECTION_(CLOSED|DESTROYED|ENDED)|CONNECT_TIMEOUT|ECONN\w+|EPIPE|ENOENT|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|57P0[1-5]|08\w{3}|53300)$/;
/** Statement canceled, lock timeout, out of resources, login refused, conflict with a replica's recovery, deadlock. */
const UNABLE = /^(57014|55P03|55000|53\w{3}|58\w{3}|28\w{3}|3D000|40001|40P01)$/;

/** The part of an AbortSignal that queries use. */
export type Signal = Pick<AbortSignal, 'aborted' | 'throwIfAborted'>;

/** A query that only reads; once the signal is aborted, nobody waits for its result any more. */
type Query<T> = (signal: Signal) => PromiseLike<T>;

/** One read, however many attempts it takes. A real AbortSignal is slower to create, and nothing here needs its event. */
class Read implements Signal {
  readonly begin = performance.now();
  aborted = false;

  throwIfAborted(): void {
    if (this.aborted) throw tooLate();
  }
}

export class Reader {
  readonly #database: Database;
  readonly #log: Log;
  readonly #metrics: Metrics;
  readonly #checks: NodeJS.Timeout;
  /** Statements that have been sent and are not answered yet, oldest first. */
  readonly #attempts = new Set<{ since: number }>();
  #lastAnswer = Number.NEGATIVE_INFINITY;
  /** Since when none of the waiting attempts has been answered. */
  #silentSince = performance.now();
  #isDown = false;

  constructor(database: Database, log: Log, metrics: Metrics) {
    this.#database = database;
    this.#log = log;
    this.#metrics = metrics;
    this.#checks = setInterval(() => this.#checkOldest(), CHECK_INTERVAL_MS).unref();
  }

  /**
   * Runs `query`, which only reads, within `limitMs` milliseconds; then its signal is aborted.
   * @throws {DatabaseUnavailable} when there is no answer in that time
   */
  read<T>(query: Query<T>, limitMs: number): Promise<T> {
    const read = new Read();
    return withDeadline(this.#attemptUntilAnswered(query, read), limitMs, () => {
      read.aborted = true;
      // PostgreSQL cancels statements earlier than that, so a connection may be dead.
      void this.#failover();
      return tooLate();
    });
  }

  close(): void {
    clearInterval(this.#checks);
  }

  async #attemptUntilAnswered<T>(query: Query<T>, read: Read): Promise<T> {
    while (!read.aborted) {
      if (this.#isDown) await this.#waitForDatabase(read);
      try {
        return await this.#attempt(query, read);
      } catch (error) {
        const reason = causeOf(error);
        if (this.#lacksOneConnection(reason, read)) {
          await sleep(RETRY_DELAY_MS);
          continue;
        }
        if (UNABLE.test(codeOf(reason)) || LACKING.test(codeOf(reason))) {
          this.#log.warn({ code: codeOf(reason), reason: reason.message }, 'the database did not complete a statement');
          throw new DatabaseUnavailable('The database could not answer.');
        }
        if (!BROKEN.test(codeOf(reason))) throw reason;
        if (!(await this.#failover())) {
          this.#reportOutage(reason);
          await this.#waitForDatabase(read);
        }
        await sleep(RETRY_DELAY_MS);
      }
    }
    throw tooLate();
  }

  /** Whether this read got no connection, but the existing ones still answer others, so that it will soon get one. */
  #lacksOneConnection(reason: Error, read: Read): boolean {
    const now = performance.now();
    return (
      codeOf(reason) === TOO_MANY_CONNECTIONS &&
      now - this.#lastAnswer < RETRY_LIMIT_MS &&
      now - read.begin < RETRY_LIMIT_MS
    );
  }

  /** Keeps reads from queueing for connections while there is no database. */
  async #waitForDatabase(read: Read): Promise<void> {
    while (!read.aborted && !(await this.#failover())) {
      if (performance.now() - read.begin > RETRY_LIMIT_MS)
        throw new DatabaseUnavailable('The database does not answer.');
      await sleep(RETRY_DELAY_MS);
    }
  }

  async #attempt<T>(query: Query<T>, signal: Signal): Promise<T> {
    const attempt = { since: performance.now() };
    // A silence begins with the first attempt that waits.
    if (this.#attempts.size === 0) this.#silentSince = attempt.since;
    this.#attempts.add(attempt);
    this.#metrics.queries(this.#attempts.size);
    try {
      const answer = await query(signal);
      this.#answered();
      return answer;
    } catch (error) {
      if (!BROKEN.test(codeOf(causeOf(error)))) this.#answered();
      throw error;
    } finally {
      this.#attempts.delete(attempt);
      this.#metrics.queries(this.#attempts.size);
    }
  }

  #checkOldest(): void {
    // A set is in the order of its insertions.
    const [oldest] = this.#attempts;
    if (oldest && performance.now() - oldest.since > LONG_WAIT_MS) void this.#failover();
  }

  /** Moves to a host that answers, if need be; resolves to whether there is one. */
  async #failover(): Promise<boolean> {
    const begin = performance.now();
    const isThere = await this.#database.failover(() => {
      const waiting = [...this.#attempts].filter(({ since }) => since <= begin).length;
      return { waiting, isSilent: waiting > 0 && performance.now() - this.#silentSince > SILENT_AFTER_MS };
    });
    if (isThere) this.#recovered();
    return isThere;
  }

  #answered(): void {
    this.#lastAnswer = performance.now();
    this.#silentSince = this.#lastAnswer;
    this.#recovered();
  }

  #recovered(): void {
    if (!this.#isDown) return;
    this.#isDown = false;
    this.#log.info('the database answers again');
  }

  /** Logs an outage once. */
  #reportOutage(reason: Error): void {
    if (this.#isDown) return;
    this.#isDown = true;
    this.#log.error({ code: codeOf(reason), reason: reason.message }, 'the database does not answer');
  }
}

function tooLate(): DatabaseUnavailable {
  return new DatabaseUnavailable('The database did not answer in time.');
}
