/**
 * Decides which requests may pass, in bounded time, whatever the shared store does.
 *
 * While the store answers, it decides. In an outage each instance keeps to a quota as well: the limit divided by the number
 * of instances. An outage begins when the store fails, or no longer knows this instance, because it came back empty; it ends
 * when the store has answered without a failure for long enough. To let no more than the limit pass in any second:
 * - in the outage's first second, if there are several instances, nobody passes, since no instance knows what the others
 *   let pass in the second before; a single instance knows, and goes on without a gap;
 * - a request that is within the quota has to pass the store, too, as soon as it answers again: the store knows nothing of
 *   what passed meanwhile, and the instances notice its return at different times;
 * - the number of instances doesn't fall until all of them have had time to register again.
 *
 * Known limitation: if the store answers some instances but not others for more than a second, those that it does not answer
 * let their quota pass beside the limit.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { causeOf } from '../database/errors.js';
import { withDeadline } from '../deadline.js';
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import { UserError } from '../userError.js';
import { LocalLog } from './localLog.js';

/** A store of counted requests that all instances share, and the register of these instances. Its clock decides. */
export interface LimitStore {
  readonly kind: string;
  /**
   * Counts a request of the client, unless it is over its limit.
   * @throws {StoreForgot} if this instance is not registered
   * @throws {UserError} if waiting does not help
   */
  count(client: string): Promise<Decision>;
  /**
   * Records that this instance is alive; resolves to how many were within `GONE_AFTER_MS`, and whether it was not among
   * them.
   * @throws {UserError} where no waiting helps
   */
  register(): Promise<{ instances: number; isNew: boolean }>;
  /** Removes this instance, which is about to end. */
  leave(): Promise<void>;
  /** Replaces connections that may hang. */
  reopen(): void;
  close(): Promise<void>;
}

/** The store has lost what it knew of this instance, and so perhaps what it has counted. */
export class StoreForgot extends Error {
  override message = 'it has lost what it counted';
}

export interface Decision {
  allowed: boolean;
  /** Requests left. */
  remaining: number;
  /** Milliseconds until there are more; at most the window. */
  waitMs: number;
}

/** A client may send the limit's requests in any window of this length. */
export const WINDOW_MS = 1000;
/** How long the store may take to answer, so that a request is decided within 250 ms even on a busy machine. */
export const STORE_TIMEOUT_MS = 150;
/** Milliseconds between heartbeats, which register an instance and try a store that has failed. */
const HEARTBEAT_MS = 400;
/** Milliseconds for which an instance still counts after its last heartbeat. */
export const GONE_AFTER_MS = 6000;
/** Milliseconds within which every instance notices that the store answers, and registers. */
const REGISTRATION_MS = 1000;
/** A start sends this many heartbeats at once, and again after a pause if none was answered, until the time is up. */
const WARM_CONNECTIONS = 3;
const WARM_UP_PAUSE_MS = 100;
const WARM_UP_TIMEOUT_MS = 2000;

interface Outage {
  /** When the store last stopped answering this instance, and when it first did. */
  since: number;
  begin: number;
  /** Why the store failed; each reason is logged once. */
  reasons: Set<string>;
}

export class RateLimiter {
  readonly #store: LimitStore;
  readonly #points: number;
  readonly #local = new LocalLog(WINDOW_MS);
  readonly #log: Log;
  readonly #metrics: Metrics;
  readonly #heart: NodeJS.Timeout;
  /** Undefined until this instance knows all the others. */
  #instances: number | undefined;
  #isRegistered = false;
  #outage: Outage | undefined;
  /** Since when the store has answered without a failure. */
  #answeringSince: number | undefined;
  #lastAnswer = 0;
  #closed = false;

  /** A limit of `points` requests in a window, shared through `store`, which is closed with the limiter. */
  constructor(store: LimitStore, points: number, log: Log, metrics: Metrics) {
    this.#store = store;
    this.#points = points;
    this.#log = log;
    this.#metrics = metrics;
    this.#heart = setInterval(() => this.#beat(), HEARTBEAT_MS).unref();
  }

  /**
   * Registers this instance, on all connections to the store; stops trying after a while.
   * @throws {UserError} where no waiting helps
   */
  async warmUp(): Promise<void> {
    const end = performance.now() + WARM_UP_TIMEOUT_MS;
    while (true) {
      try {
        const beats = Array.from({ length: WARM_CONNECTIONS }, () => this.#register());
        const [instances = 1] = await inTime(Promise.all(beats));
        // Counting needs different privileges than registering.
        await inTime(this.#store.count('start'));
        return this.#answered(instances);
      } catch (error) {
        if (error instanceof UserError) throw error;
        // A store that has just started may miss its statements' time limit at first, and then answer in time.
        if (performance.now() + WARM_UP_PAUSE_MS > end) return this.#failed(error);
        await sleep(WARM_UP_PAUSE_MS);
      }
    }
  }

  /** Decides within 250 ms whether a request of `client` passes, and counts it if so. Never rejects. */
  async decide(client: string): Promise<Decision> {
    const asked = performance.now();
    const blockedMs = this.#local.blockedFor(client);
    let decision = blockedMs > 0 ? refused(blockedMs) : this.#decideAlone(client);
    if (decision.allowed && (!this.#outage || this.#answeringSince !== undefined)) {
      const answer = await this.#ask(client, asked);
      // The store answers many requests together, and the outage may have begun meanwhile.
      decision = both(answer, this.#decideAlone(client));
    }
    if (decision.allowed) this.#local.admit(client, asked);
    this.#metrics.limited(decision.allowed, (performance.now() - asked) / 1000);
    return decision;
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#heart);
    // In an outage, too: a heartbeat may have recorded this instance, though its answer was late.
    await inTime(this.#store.leave()).catch(() => {});
    await this.#store.close();
  }

  /** What the store says; undefined if this instance has to decide. */
  async #ask(client: string, asked: number): Promise<Decision | undefined> {
    try {
      const answer = await inTime(this.#store.count(client));
      this.#lastAnswer = performance.now();
      // What is left of a wait that began when the store answered, which was after `asked`.
      const waitMs = Math.min(Math.max(0, answer.waitMs - (this.#lastAnswer - asked)), WINDOW_MS);
      // Until its oldest request leaves the window, the store could give no other answer.
      if (!answer.allowed) this.#local.block(client, waitMs);
      return { ...answer, waitMs };
    } catch (error) {
      // Others were answered meanwhile, so the store is up. It may have counted this one; a single instance knows the rest.
      const isUp = this.#lastAnswer > asked && !(error instanceof StoreForgot);
      if (!isUp) this.#failed(error);
      else this.#metrics.storeFailed(this.#store.kind);
      return isUp && this.#instances !== 1 ? refused(WINDOW_MS) : undefined;
    }
  }

  /** What this instance allows on its own: its quota, but nothing in the first second of an outage. */
  #decideAlone(client: string): Decision {
    const pauseMs = this.#pauseMs;
    if (pauseMs > 0) return refused(pauseMs);
    const remaining = this.#quota - this.#local.count(client) - 1;
    return { allowed: remaining >= 0, remaining: Math.max(0, remaining), waitMs: this.#local.wait(client) };
  }

  /** Milliseconds for which nobody passes. */
  get #pauseMs(): number {
    if (!this.#outage || this.#instances === 1) return 0;
    return this.#outage.since + WINDOW_MS - performance.now();
  }

  /** In an outage at least one request, so that it serves at all; one if nothing is known. */
  get #quota(): number {
    if (!this.#outage) return this.#points;
    return Math.max(1, Math.floor(this.#points / (this.#instances ?? this.#points)));
  }

  async #beat(): Promise<void> {
    const asked = performance.now();
    try {
      this.#answered(await inTime(this.#register()));
    } catch (error) {
      // A late one says little: the next request will notice.
      if (!this.#outage && (error instanceof NoAnswer || this.#lastAnswer > asked)) return;
      this.#failed(error);
      this.#store.reopen();
    }
  }

  /** Resolves to how many instances there are; rejects where the store knew this one before and does not any more. */
  async #register(): Promise<number> {
    const wasRegistered = this.#isRegistered;
    const { instances, isNew } = await this.#store.register();
    this.#isRegistered = true;
    // However late it came, so that on a busy machine each instance knows of the others when the store fails.
    if (this.#instances !== undefined) this.#instances = Math.max(this.#instances, instances);
    if (wasRegistered && isNew) throw new StoreForgot();
    return instances;
  }

  /** Learns from the store's answer to a heartbeat how many instances there are. */
  #answered(instances: number): void {
    this.#lastAnswer = performance.now();
    this.#answeringSince ??= this.#lastAnswer;
    const answering = this.#lastAnswer - this.#answeringSince;
    // Then the store has counted what every instance let pass in the last second.
    if (this.#outage && answering >= REGISTRATION_MS + WINDOW_MS) this.#endOutage(this.#outage);
    const knowsAll = answering >= (this.#instances === undefined ? REGISTRATION_MS : GONE_AFTER_MS);
    if (knowsAll && !this.#outage) this.#instances = instances;
  }

  #failed(error: unknown): void {
    if (this.#closed) return;
    this.#metrics.storeFailed(this.#store.kind);
    const now = performance.now();
    const wasAnswering = this.#answeringSince !== undefined;
    this.#answeringSince = undefined;
    if (!this.#outage) {
      this.#outage = { since: now, begin: now, reasons: new Set() };
      this.#metrics.storeUp(false);
    } else if (wasAnswering) {
      // If it was only late here, it may still answer the others.
      this.#outage.since = now;
    }
    const reason = causeOf(error).message;
    if (this.#outage.reasons.has(reason)) return;
    this.#outage.reasons.add(reason);
    this.#log.error(
      { store: this.#store.kind, reason, quota: this.#quota },
      'the rate limit store failed: each client is limited to its quota of this instance',
    );
  }

  #endOutage({ begin }: Outage): void {
    const seconds = Math.round((performance.now() - begin) / 100) / 10;
    this.#outage = undefined;
    this.#metrics.storeUp(true);
    this.#log.info({ store: this.#store.kind, seconds }, 'the rate limit store answers again');
  }
}

/** Passes what both this instance and the store, if it has answered, let pass. */
function both(answer: Decision | undefined, own: Decision): Decision {
  if (!answer || (answer.allowed && !own.allowed)) return own;
  // The store has counted more than the limit if another instance has a higher one, as while the setting is changed.
  return { ...answer, remaining: Math.max(0, Math.min(answer.remaining, own.remaining)) };
}

function refused(waitMs: number): Decision {
  return { allowed: false, remaining: 0, waitMs };
}

function inTime<T>(answer: Promise<T>): Promise<T> {
  return withDeadline(answer, STORE_TIMEOUT_MS, noAnswer);
}

class NoAnswer extends Error {}

function noAnswer(): Error {
  return new NoAnswer(`no answer within ${STORE_TIMEOUT_MS} ms`);
}
