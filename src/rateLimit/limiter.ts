/**
 * Decides which requests may pass, in bounded time, whatever the shared store does. A request passes if this instance has let
 * fewer than the limit of its client pass in the last second, and the store has room for it as well, or can't be asked. So
 * each instance keeps the limit alone while the store is down, and goes on without a gap.
 *
 * Why not with rate-limiter-flexible's own parts: its `insuranceLimiter` would be a `RateLimiterMemory`, whose fixed windows
 * let almost twice the limit pass around their edge, and which begins at 0 when the store fails; its
 * `inMemoryBlockOnConsumed` looks at all blocked clients whenever it adds one (1.4 s of CPU for 20,000); its
 * `RLWrapperTimeouts` takes an answer for late that came in time, while the instance was busy.
 *
 * Known limitation: N instances that can't ask the store let up to N times the limit pass.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import { RateLimiterRes } from 'rate-limiter-flexible';
import { causeOf } from '../database/errors.js';
import { withDeadline } from '../deadline.js';
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import { UserError } from '../userError.js';

/** What all instances count in: a sliding log of each client's requests, by one clock. */
export interface LimitStore {
  readonly kind: string;
  /**
   * Counts a request of the client; rejects with the result if the client is over its limit.
   * @throws {UserError} if waiting does not help
   */
  consume(client: string): Promise<RateLimiterRes>;
  /** Begins to remove clients that have stopped sending, if the store does not do so itself. */
  startSweeping?(): void;
  close(): Promise<void>;
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
/** More clients than an instance can answer in a window; beyond, the one that asked longest ago is forgotten. */
const MAX_CLIENTS = 50_000;
/** A start asks the store again after a pause if it did not answer, until the time is up. */
const WARM_UP_PAUSE_MS = 100;
const WARM_UP_TIMEOUT_MS = 2000;
/** Clients that nobody is. So many that each node of a Redis Cluster is asked for one of them. */
const NOBODIES = Array.from({ length: 16 }, (_, i) => `start ${i}`);
/** A reason for which the store fails is logged again after this time. */
const LOG_INTERVAL_MS = 60_000;

/** A request that this instance let pass: when it came, and when the store said that it was counted, if it did. */
interface Passed {
  came: number;
  counted: number;
}

export class RateLimiter {
  readonly #store: LimitStore;
  readonly #points: number;
  /** What passed here in the last window and before, and who is over the limit in the store. */
  readonly #passed = new LRUCache<string, readonly Passed[]>({ max: MAX_CLIENTS });
  readonly #over = new LRUCache<string, true>({ max: MAX_CLIENTS });
  readonly #logged = new LRUCache<string, true>({ max: 100, ttl: LOG_INTERVAL_MS });
  readonly #log: Log;
  readonly #metrics: Metrics;

  /** A limit of `points` requests in a window, shared through `store`, which is closed with the limiter. */
  constructor(store: LimitStore, points: number, log: Log, metrics: Metrics) {
    this.#store = store;
    this.#points = points;
    this.#log = log;
    this.#metrics = metrics;
  }

  /**
   * Asks the store until it answers; stops trying after a while.
   * @throws {UserError} where no waiting helps
   */
  async warmUp(): Promise<void> {
    for (const end = performance.now() + WARM_UP_TIMEOUT_MS; ; await sleep(WARM_UP_PAUSE_MS)) {
      try {
        return void (await Promise.all(NOBODIES.map((client) => this.#ask(client).catch(unlessOver))));
      } catch (error) {
        if (error instanceof UserError) throw error;
        if (performance.now() > end) return this.#failed(error);
      }
    }
  }

  /** Decides within 250 ms whether a request of `client` passes, and counts it if so. Never rejects. */
  async decide(client: string): Promise<Decision> {
    const came = performance.now();
    const decision = await this.#decide(client, came);
    this.#metrics.limited(decision.allowed, (performance.now() - came) / 1000);
    return decision;
  }

  close(): Promise<void> {
    return this.#store.close();
  }

  async #decide(client: string, came: number): Promise<Decision> {
    const overMs = this.#over.getRemainingTTL(client);
    if (overMs > 0) return refused(overMs);
    const others = this.#recent(client, came);
    const waitMs = (others[0]?.came ?? came) + WINDOW_MS - came;
    if (others.length >= this.#points) return refused(waitMs);
    const request = { came, counted: Number.POSITIVE_INFINITY };
    this.#passed.set(client, [...others, request]);
    const remaining = this.#points - others.length - 1;
    try {
      const answer = await this.#ask(client);
      request.counted = performance.now();
      // Answered before this one came, and not out of the store's window by now.
      const isKnown = ({ came: before, counted }: Passed) => counted < came && before > request.counted - WINDOW_MS;
      // The store was emptied or its clock was set, so it has forgotten what other instances have let pass, too.
      if (answer.consumedPoints <= others.filter(isKnown).length) return this.#refuse(client, request, WINDOW_MS);
      return { allowed: true, remaining: Math.min(answer.remainingPoints, remaining), waitMs: answer.msBeforeNext };
    } catch (error) {
      if (error instanceof RateLimiterRes) return this.#refuse(client, request, error.msBeforeNext);
      this.#failed(error);
      return { allowed: true, remaining, waitMs };
    }
  }

  /** What the store says, in time. */
  #ask(client: string): Promise<RateLimiterRes> {
    return withDeadline(this.#store.consume(client), STORE_TIMEOUT_MS, late);
  }

  /** The requests of the client that passed here in the window before `now`. */
  #recent(client: string, now: number): readonly Passed[] {
    return (this.#passed.get(client) ?? []).filter(({ came }) => came > now - WINDOW_MS);
  }

  /** Refuses `request`, and what else the client sends before the store could let it pass. */
  #refuse(client: string, request: Passed, storeMs: number): Decision {
    const waitMs = Math.min(Math.max(1, storeMs), WINDOW_MS);
    this.#passed.set(
      client,
      this.#recent(client, request.came).filter((each) => each !== request),
    );
    this.#over.set(client, true, { ttl: waitMs });
    return refused(waitMs);
  }

  #failed(error: unknown): void {
    this.#metrics.storeFailed();
    const { message: reason } = causeOf(error);
    if (this.#logged.has(reason)) return;
    this.#logged.set(reason, true);
    this.#log.error(
      { store: this.#store.kind, reason },
      'the rate limit store failed: each instance counts on its own',
    );
  }
}

const late = () => new Error(`no answer within ${STORE_TIMEOUT_MS} ms`);

function unlessOver(error: unknown): void {
  if (!(error instanceof RateLimiterRes)) throw error;
}

function refused(waitMs: number): Decision {
  return { allowed: false, remaining: 0, waitMs };
}
