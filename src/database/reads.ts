/**
 * Reads from the database, each with a deadline. A read whose connection breaks is sent again until its deadline, and on
 * each new generation of connections, since reading twice does no harm; the first answer counts. One that is late, or that
 * the database can't do, rejects with `DatabaseUnavailable`.
 */
import { withDeadline } from '../deadline.js';
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import { CONNECTION_BROKEN, causeOf, codeOf, DatabaseUnavailable, NOT_MIGRATED, UNABLE } from './errors.js';
import type { Generation, Generations, Prepared } from './generations.js';

/** Milliseconds between checks of the waiting reads. */
const SEND_INTERVAL_MS = 50;
/** Milliseconds that a read waits for an old generation before it is sent to the current one, too. */
const LONG_WAIT_MS = 500;

/** The part of an AbortSignal that queries use. */
export type Signal = Pick<AbortSignal, 'aborted' | 'throwIfAborted'>;

/** A query that only reads; once the signal is aborted, its result is no longer needed. */
type Query<P, T> = (prepared: P, signal: Signal) => PromiseLike<T>;

/** One read, which may be sent several times. A real AbortSignal is slower to create, and its event is not needed. */
class Read<P extends Prepared> implements Signal {
  readonly since = performance.now();
  readonly query: Query<P, void>;
  readonly reject: (reason: Error) => void;
  aborted = false;
  /** The generation that may still answer it; undefined where it has to be sent again. */
  sentTo: Generation<P> | undefined;

  constructor(query: Query<P, void>, reject: (reason: Error) => void) {
    this.query = query;
    this.reject = reject;
  }

  throwIfAborted(): void {
    if (this.aborted) throw tooLate();
  }
}

export class Reader<P extends Prepared> {
  readonly #generations: Generations<P>;
  readonly #log: Log;
  readonly #metrics: Metrics;
  readonly #timer: NodeJS.Timeout;
  /**
   * Those that are not answered yet. Not a Set: V8 links the tables that a Set has outgrown, and through them each page that
   * was read would stay in memory until the next full garbage collection.
   */
  readonly #reads: Read<P>[] = [];
  #isDown = false;

  constructor(generations: Generations<P>, log: Log, metrics: Metrics) {
    this.#generations = generations;
    this.#log = log;
    this.#metrics = metrics;
    this.#timer = setInterval(() => this.#sendAgain(), SEND_INTERVAL_MS).unref();
  }

  /**
   * Runs `query`, which only reads, within `limitMs` milliseconds; then its signal is aborted.
   * @throws {DatabaseUnavailable} when there is no answer in that time
   */
  async read<T>(query: Query<P, T>, limitMs: number): Promise<T> {
    let read!: Read<P>;
    const answer = new Promise<T>((resolve, reject) => {
      read = new Read((prepared, signal) => query(prepared, signal).then(resolve), reject);
      this.#reads.push(read);
      if (!this.#isDown) void this.#send(read);
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

  async #send(read: Read<P>): Promise<void> {
    const { current } = this.#generations;
    read.sentTo = current;
    try {
      await current.ask((prepared) => read.query(prepared, read));
    } catch (error) {
      // The next generation may still answer.
      if (read.sentTo !== current) return;
      const reason = causeOf(error);
      if (CONNECTION_BROKEN.test(codeOf(reason))) read.sentTo = undefined;
      else read.reject(this.#failureOf(reason));
    }
  }

  #sendAgain(): void {
    const { current, outage } = this.#generations;
    if (outage && !this.#isDown)
      this.#log.error({ code: codeOf(outage), reason: outage.message }, 'the database does not answer');
    if (!outage && this.#isDown) this.#log.info('the database answers again');
    this.#isDown = outage !== undefined;
    // Otherwise they would fill the queues of connections that nobody answers on.
    if (this.#isDown) return;
    const longAgo = performance.now() - LONG_WAIT_MS;
    for (const read of this.#reads)
      if (!read.sentTo || (read.sentTo !== current && read.since < longAgo)) void this.#send(read);
  }

  #failureOf(reason: Error): Error {
    const code = codeOf(reason);
    if (!UNABLE.test(code) && !NOT_MIGRATED.test(code)) return reason;
    this.#log.warn({ code, reason: reason.message }, 'the database did not complete a statement');
    return new DatabaseUnavailable('The database could not answer.');
  }
}

function tooLate(): DatabaseUnavailable {
  return new DatabaseUnavailable('The database did not answer in time.');
}
