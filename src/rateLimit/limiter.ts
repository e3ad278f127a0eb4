/**
 * Decides which requests may pass, in bounded time, whatever the shared store does.
 *
 * While the store answers, it decides. While it doesn't, each instance admits its share of the limit: the limit divided
 * by the instances that were alive when the store last answered. So that no more than the limit pass in any second:
 * - in the outage's first second, where there are several instances, nobody passes, since no instance knows what the
 *   others let pass in the second before; a single instance knows and goes on without a gap;
 * - for two seconds after the outage both the store and the share have to agree, since the store knows nothing of what
 *   passed meanwhile, and the instances notice its return at different times.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { RateLimiterRes } from 'rate-limiter-flexible';
import { causeOf } from '../database/errors.js';
import { withDeadline } from '../deadline.js';
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import { LocalLog } from './localLog.js';

/** A store of counted requests that all instances share. Setting its clock back blocks no client for that long. */
export interface LimitStore {
  readonly kind: string;
  /**
   * Counts a request, as rate-limiter-flexible's limiters do: rejects with a RateLimiterRes when the client is over its
   * limit, with an Error when the store is in trouble.
   */
  consume(client: string): Promise<RateLimiterRes>;
  /** Records a heartbeat of the instance; resolves to how many instances had one in the last `maxAgeMs` milliseconds. */
  countInstances(instance: string, maxAgeMs: number): Promise<number>;
  /** Removes the instance, which is about to end. */
  leave(instance: string): Promise<void>;
  /** Calls `report` when the connection to the store is lost, without waiting for a request to fail. */
  onLoss(report: () => void): void;
  /** Replaces connections that may hang. */
  reopen(): void;
  close(): Promise<void>;
}

export interface Decision {
  allowed: boolean;
  /** Requests left. */
  remaining: number;
  /** Milliseconds until there are more; at most the window. */
  waitMs: number;
}

/** How long the store may take to answer, so that a request is decided within 250 ms even on a busy machine. */
export const STORE_TIMEOUT_MS = 150;
/** Milliseconds between two attempts to reach a store in trouble. */
const RETRY_DELAY_MS = 250;
/** Milliseconds after an outage in which the share still holds: a window, and until the last instance has noticed. */
const CAUTION_MS = 2000;
/** Milliseconds between two heartbeats of an instance, and after the last of which it counts as gone. */
const HEARTBEAT_MS = 2000;
const GONE_AFTER_MS = 3 * HEARTBEAT_MS;
/** A start sends this many heartbeats at once, and again after a pause if none was answered, until the time is up. */
const WARM_CONNECTIONS = 3;
const WARM_UP_PAUSE_MS = 100;
const WARM_UP_TIMEOUT_MS = 2000;

export class RateLimiter {
  readonly #store: LimitStore;
  readonly #points: number;
  readonly #windowMs: number;
  readonly #local: LocalLog;
  readonly #log: Log;
  readonly #metrics: Metrics;
  readonly #id = randomUUID();
  readonly #heart: NodeJS.Timeout;
  /** Undefined until the store has answered. */
  #instances: number | undefined;
  #outageSince: number | undefined;
  #cautiousUntil = 0;
  #lastAnswer = 0;
  #closed = false;

  /** A limit of `points` requests in `windowSeconds`, shared through `store`, which is closed with the limiter. */
  constructor(store: LimitStore, points: number, windowSeconds: number, log: Log, metrics: Metrics) {
    this.#store = store;
    this.#points = points;
    this.#windowMs = windowSeconds * 1000;
    this.#local = new LocalLog(this.#windowMs);
    this.#log = log;
    this.#metrics = metrics;
    this.#heart = setInterval(() => this.#beat(), HEARTBEAT_MS).unref();
    store.onLoss(() => this.#beginOutage('the connection was lost'));
  }

  /** Opens the connections to the store and counts the other instances; stops trying after a while, but never rejects. */
  async warmUp(): Promise<void> {
    const end = performance.now() + WARM_UP_TIMEOUT_MS;
    while (this.#instances === undefined && performance.now() < end) {
      const beats = Promise.all(Array.from({ length: WARM_CONNECTIONS }, () => this.#beat()));
      await withDeadline(beats, end - performance.now(), noAnswer).catch(() => {});
      // A store that has just started may miss its statements' time limit at first, and then answer in time.
      if (this.#instances === undefined) await sleep(WARM_UP_PAUSE_MS);
    }
  }

  /**
   * Whether a request of `client` beside `pending` others will most likely pass, by what this instance knows; costs the
   * store nothing.
   */
  isLikelyToPass(client: string, pending = 0): boolean {
    return this.#outageSince === undefined && this.#local.hasRoom(client, this.#points, pending);
  }

  /** Decides within 250 ms whether a request of `client` passes, and counts it if so. Never rejects. */
  async decide(client: string): Promise<Decision> {
    const begin = performance.now();
    this.#local.begin(client);
    const answer = this.#outageSince === undefined ? await this.#askStore(client) : undefined;
    // Recorded at once: the store answers many requests together, and each has to be decided knowing those before it.
    const decision = this.#decideBy(answer, client);
    this.#local.end(client, decision.allowed);
    this.#metrics.limited(decision.allowed, (performance.now() - begin) / 1000);
    return decision;
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#heart);
    this.#local.close();
    // In an outage, too: an attempt to reach the store may have recorded this instance, though its answer was late.
    await inTime(this.#store.leave(this.#id)).catch(() => {});
    await this.#store.close();
  }

  /** What the store says; undefined where this instance has to decide. */
  async #askStore(client: string): Promise<Decision | undefined> {
    const blocked = this.#local.blockedFor(client);
    if (blocked > 0) return refused(blocked);
    const asked = performance.now();
    try {
      const { remainingPoints, msBeforeNext } = await inTime(this.#store.consume(client));
      this.#lastAnswer = performance.now();
      return { allowed: true, remaining: remainingPoints, waitMs: this.#waitSince(asked, msBeforeNext) };
    } catch (reason) {
      if (reason instanceof RateLimiterRes) {
        this.#lastAnswer = performance.now();
        const waitMs = this.#waitSince(asked, reason.msBeforeNext);
        // Until its oldest request leaves the window, the store could give no other answer.
        this.#local.block(client, waitMs);
        return refused(waitMs);
      }
      this.#metrics.storeFailed(this.#store.kind);
      // Other requests were answered meanwhile, so the store is up; this one may have been counted or not.
      if (this.#lastAnswer > asked) return this.#withoutAnswer();
      this.#beginOutage(causeOf(reason).message);
      return undefined;
    }
  }

  #decideBy(answer: Decision | undefined, client: string): Decision {
    if (answer === undefined) return this.#decideAlone(client);
    const isCautious = performance.now() < this.#cautiousUntil;
    if (answer.allowed && isCautious && this.#local.count(client) >= this.#share)
      return refused(this.#local.wait(client));
    return answer;
  }

  /** What is left of a wait that began when the store answered, which was after `asked`; never more than a window. */
  #waitSince(asked: number, waitMs: number): number {
    return Math.min(Math.max(0, waitMs - (performance.now() - asked)), this.#windowMs);
  }

  /** A single instance knows all that has passed, and relies on it until whatever the store missed is out of the window. */
  #withoutAnswer(): Decision | undefined {
    if (this.#instances !== 1) return refused(this.#windowMs);
    this.#cautiousUntil = Math.max(this.#cautiousUntil, performance.now() + this.#windowMs);
    return undefined;
  }

  #decideAlone(client: string): Decision {
    const since = performance.now() - (this.#outageSince ?? 0);
    if (this.#instances !== 1 && since < this.#windowMs) return refused(this.#windowMs - since);
    const remaining = this.#share - this.#local.count(client) - 1;
    return { allowed: remaining >= 0, remaining: Math.max(0, remaining), waitMs: this.#local.wait(client) };
  }

  /** What this instance may admit by itself: at least one, so that it serves at all; one where nothing is known. */
  get #share(): number {
    return Math.max(1, Math.floor(this.#points / (this.#instances ?? this.#points)));
  }

  #beginOutage(reason: string): void {
    if (this.#outageSince !== undefined || this.#closed) return;
    this.#outageSince = performance.now();
    this.#metrics.storeUp(false);
    this.#log.error(
      { store: this.#store.kind, reason, share: this.#share },
      'the rate limit store is in trouble: each client is limited to its share of this instance',
    );
    this.#retryLater();
  }

  #retryLater(): void {
    setTimeout(async () => {
      if (this.#closed) return;
      try {
        // It writes, as counting a request does, so a store that can't be written to is not taken for a good one.
        await inTime(this.#store.countInstances(this.#id, GONE_AFTER_MS));
        this.#endOutage();
      } catch {
        this.#metrics.storeFailed(this.#store.kind);
        this.#store.reopen();
        this.#retryLater();
      }
    }, RETRY_DELAY_MS).unref();
  }

  #endOutage(): void {
    const now = performance.now();
    const seconds = Math.round((now - (this.#outageSince ?? now)) / 100) / 10;
    this.#outageSince = undefined;
    this.#cautiousUntil = now + CAUTION_MS;
    this.#metrics.storeUp(true);
    this.#log.info({ store: this.#store.kind, seconds }, 'the rate limit store answers again');
  }

  /** Ignores failures: the next request will notice them. */
  async #beat(): Promise<void> {
    if (this.#outageSince !== undefined) return;
    try {
      this.#instances = await this.#store.countInstances(this.#id, GONE_AFTER_MS);
    } catch {}
  }
}

function refused(waitMs: number): Decision {
  return { allowed: false, remaining: 0, waitMs };
}

function inTime<T>(answer: Promise<T>): Promise<T> {
  return withDeadline(answer, STORE_TIMEOUT_MS, noAnswer);
}

function noAnswer(): Error {
  return new Error(`no answer within ${STORE_TIMEOUT_MS} ms`);
}
