/**
 * Generations of connections to PostgreSQL. postgres.js waits forever on a connection that was cut silently, and only time
 * tells it apart from one whose answer takes long. So a client lasts only as long as it answers: it is the current
 * generation, with all that is prepared on it, until the next one takes over, on the same host or another. Two reasons:
 * - nothing at all was answered for half a second, though something was asked;
 * - a statement has waited for half of its time limit, which leaves time to ask again (in the fault table of
 *   docs/operations.md, "its connections are half-open": some may be dead while new ones answer).
 *
 * The next one takes over only if it answers, and if the reason still holds by then. The old one ends once it has answered
 * what it still can. Only then, and no sooner than two seconds later, may another one follow: no host ever has the
 * connections of more than two.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { withDeadline } from '../deadline.js';
import { hostsOf } from '../postgresUrl/postgresUrl.js';
import { closeDatabase, type Database } from './connect.js';
import { CONNECTION_BROKEN, causeOf, codeOf } from './errors.js';

const CHECK_INTERVAL_MS = 100;
const MAX_SILENCE_MS = 500;
const MIN_AGE_MS = 2000;
/** How long the next generation may take to answer, and the head start that the host in use has over the others. */
const ANSWER_TIMEOUT_MS = 1000;
const HEAD_START_MS = 250;

/** A client, and what was prepared on it. */
export interface Prepared {
  readonly database: Database;
}

export class Generation<P extends Prepared> {
  readonly host: string;
  readonly #prepared: P;
  /** Questions that are not answered yet, oldest first. */
  readonly #waiting = new Set<{ since: number }>();
  /** Since when questions have been waiting without any answer. */
  #silentSince = Number.POSITIVE_INFINITY;

  constructor(host: string, prepared: P) {
    this.host = host;
    this.#prepared = prepared;
  }

  /** Asks once; rejects when the connection breaks, and when the generation ends. */
  async ask<T>(question: (prepared: P) => PromiseLike<T>): Promise<T> {
    const asked = { since: performance.now() };
    this.#waiting.add(asked);
    this.#silentSince = Math.min(this.#silentSince, asked.since);
    let isAnswered = true;
    try {
      return await question(this.#prepared);
    } catch (error) {
      isAnswered = !CONNECTION_BROKEN.test(codeOf(causeOf(error)));
      throw error;
    } finally {
      this.#waiting.delete(asked);
      if (isAnswered) this.#silentSince = this.#waiting.size > 0 ? performance.now() : Number.POSITIVE_INFINITY;
    }
  }

  get isSilent(): boolean {
    return performance.now() - this.#silentSince > MAX_SILENCE_MS;
  }

  /** How long the oldest question has waited, in milliseconds; 0 where all are answered. */
  get waitMs(): number {
    const [oldest] = this.#waiting;
    return oldest ? performance.now() - oldest.since : 0;
  }

  /** Ends the connections; what is not answered within `timeoutMs` milliseconds is rejected. */
  end(timeoutMs = 0): Promise<void> {
    return closeDatabase(this.#prepared.database, timeoutMs / 1000);
  }
}

interface Options {
  /** Milliseconds after which PostgreSQL itself cancels a statement. */
  timeLimitMs: number;
  /** Called when the next generation has taken over. */
  onFailover?: () => void;
}

export class Generations<P extends Prepared> {
  readonly #hosts: readonly string[];
  readonly #open: (host: string) => P;
  readonly #options: Options;
  readonly #checks: NodeJS.Timeout;
  #current: Generation<P>;
  /** The one before it, while that may still answer. */
  #old: Generation<P> | undefined;
  #tookOver = Number.NEGATIVE_INFINITY;
  #isOpening = false;
  #isClosed = false;
  #outage: Error | undefined;

  /** Generations on the hosts of `url`; `open` prepares a client on one of them. Nothing is sent before something is asked. */
  constructor(url: string, open: (host: string) => P, options: Options) {
    this.#hosts = hostsOf(url);
    this.#open = open;
    this.#options = options;
    const [first = url] = this.#hosts;
    this.#current = new Generation(first, open(first));
    this.#checks = setInterval(() => this.#check(), CHECK_INTERVAL_MS).unref();
  }

  get current(): Generation<P> {
    return this.#current;
  }

  /** Why no next generation answers, while the current one is silent. */
  get outage(): Error | undefined {
    return this.#outage;
  }

  /** Ends all connections; what the current ones answer after `timeoutMs` milliseconds is rejected. */
  async close(timeoutMs: number): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#checks);
    await Promise.all([this.#old?.end(), this.#current.end(timeoutMs)]);
  }

  #check(): void {
    const age = performance.now() - this.#tookOver;
    if (!this.#current.isSilent) this.#outage = undefined;
    if (this.#old && (this.#old.waitMs === 0 || age > this.#options.timeLimitMs)) {
      void this.#old.end();
      this.#old = undefined;
    }
    if (!this.#isOpening && !this.#old && age > MIN_AGE_MS && this.#isFailing) void this.#takeOver();
  }

  get #isFailing(): boolean {
    return this.#current.isSilent || this.#current.waitMs > this.#options.timeLimitMs / 2;
  }

  async #takeOver(): Promise<void> {
    this.#isOpening = true;
    const next = await this.#firstToAnswer().catch((error) => {
      const [reason] = error instanceof AggregateError ? error.errors : [error];
      if (this.#current.isSilent) this.#outage = causeOf(reason);
      return undefined;
    });
    this.#isOpening = false;
    // If it was answered meanwhile, it was only slow.
    if (this.#isClosed || !this.#isFailing) return next?.end();
    if (!next) return;
    [this.#old, this.#current] = [this.#current, next];
    this.#tookOver = performance.now();
    this.#options.onFailover?.();
  }

  /** Opens a generation on each host, the one in use first. Rejects with all reasons where none of them answers. */
  async #firstToAnswer(): Promise<Generation<P>> {
    const { host: inUse } = this.#current;
    const hosts = [inUse, ...this.#hosts.filter((host) => host !== inUse)];
    const opened = hosts.map((host) => new Generation(host, this.#open(host)));
    const answers = opened.map(async (generation, i) => {
      await sleep(i * HEAD_START_MS);
      const answer = generation.ask(({ database }) => database.$client`SELECT`);
      await withDeadline(answer, ANSWER_TIMEOUT_MS, () => new Error('no answer'));
      return generation;
    });
    let first: Generation<P> | undefined;
    try {
      first = await Promise.any(answers);
      return first;
    } finally {
      for (const generation of opened) if (generation !== first) void generation.end();
    }
  }
}
