/**
 * Decides which requests may pass, in bounded time, whatever the shared store does. A request passes if this instance has let
 * fewer than the limit of its client pass in the last second, and the store has room for it as well, or can't be asked. So
 * each instance keeps the limit alone while the store is down, and goes on without a gap.
 *
 * Why not with rate-limiter-flexible's own parts: its `insuranceLimiter` would be a `RateLimiterMemory`, whose fixed windows
 * let almost twice the limit pass around their edge, and which begins at 0 when the store fails; its
 * `inMemoryBlockOnConsumed` looks at all blocked clients whenever it adds one (1.4 s of CPU for 20,000); its
 * `RLWrapperTimeouts` takes a response for late that came in time, while the instance was busy.
 *
 * Known limitation: N instances that can't ask the store let up to N times the limit pass, and so they do in the second in
 * which a store comes back empty, or its clock is set forward.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import { RateLimiterRes } from 'rate-limiter-flexible';
import { causeOf } from '../database/errors.js';
import { withDeadline } from '../deadline.js';
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import { UserError } from '../userError.js';
import { WINDOW_MS } from './slidingLog.js';

/** What all instances count in: a sliding log of each client's requests, by one clock. */
export interface LimitStore {
  readonly kind: string;
  /**
   * Counts a request of the client that came at `came`, by `performance.now()`; rejects with the result if the client was
   * over its limit then.
   * @throws {UserError} if waiting does not help
   */
  consume(client: string, came: number): Promise<RateLimiterRes>;
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

/** A request that is being counted. */
export interface Count {
  /** Whether it is worth preparing the response meanwhile; false if this instance refuses the request by its own log. */
  isProbable: boolean;
  decision: Promise<Decision>;
}

/** How long the store may take to respond, so that a request is decided within 250 ms even on a busy machine. */
export const STORE_TIMEOUT_MS = 150;
/** More clients than an instance can serve in a window; beyond, the one whose request is the oldest is forgotten. */
const MAX_CLIENTS = 50_000;
/** A start asks the store again after a pause if it did not respond, until the time is up. */
const WARM_UP_PAUSE_MS = 100;
const WARM_UP_TIMEOUT_MS = 2000;
/** Client ids used only to probe the store at startup: enough of them that one belongs to each node of a Redis Cluster. */
const PROBES = Array.from({ length: 16 }, (_, i) => `start ${i}`);
/** A reason for which the store fails is logged again after this time. */
const LOG_INTERVAL_MS = 60_000;

/** A request that this instance has let pass, at least until the store refused it. */
interface Passed {
  came: number;
  isRefused: boolean;
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
   * Asks the store until it responds; stops trying after a while.
   * @throws {UserError} if the failure is permanent (wrong password, missing privilege)
   */
  async warmUp(): Promise<void> {
    for (const end = performance.now() + WARM_UP_TIMEOUT_MS; ; await sleep(WARM_UP_PAUSE_MS)) {
      try {
        return void (await Promise.all(PROBES.map((client) => this.#ask(client, performance.now()).catch(unlessOver))));
      } catch (error) {
        if (error instanceof UserError) throw error;
        if (performance.now() > end) return this.#failed(error);
      }
    }
  }

  /**
   * Counts a request of `client`, and decides within 250 ms whether it passes. At most the limit's number of a client's
   * requests in a window are both probable and then refused.
   */
  count(client: string): Count {
    const came = performance.now();
    const { isProbable, decision } = this.#count(client, came);
    const measured = decision.then((made) => {
      this.#metrics.limited(made.allowed, (performance.now() - came) / 1000);
      return made;
    });
    return { isProbable, decision: measured };
  }

  close(): Promise<void> {
    return this.#store.close();
  }

  #count(client: string, came: number): Count {
    const overMs = this.#over.getRemainingTTL(client);
    if (overMs > 0) return refusedHere(overMs);
    const recent = (this.#passed.get(client) ?? []).filter((request) => request.came > came - WINDOW_MS);
    const passed = recent.filter(({ isRefused }) => !isRefused);
    const waitMs = (passed[0]?.came ?? came) + WINDOW_MS - came;
    if (passed.length >= this.#points) return refusedHere(waitMs);
    const request = { came, isRefused: false };
    const isProbable = recent.length < this.#points;
    this.#passed.set(client, [...recent, request]);
    const alone = { allowed: true, remaining: this.#points - passed.length - 1, waitMs };
    return { isProbable, decision: this.#decide(client, request, alone) };
  }

  /** Returns what the store decides; `alone`, what this instance does, if the store does not respond in time. */
  async #decide(client: string, request: Passed, alone: Decision): Promise<Decision> {
    try {
      const { remainingPoints, msBeforeNext } = await this.#ask(client, request.came);
      return { allowed: true, remaining: Math.min(remainingPoints, alone.remaining), waitMs: msBeforeNext };
    } catch (error) {
      if (!(error instanceof RateLimiterRes)) {
        this.#failed(error);
        return alone;
      }
      // Refuses any more that the client sends before the store could let one pass.
      request.isRefused = true;
      const waitMs = Math.min(Math.max(1, error.msBeforeNext), WINDOW_MS);
      this.#over.set(client, true, { ttl: waitMs });
      return refused(waitMs);
    }
  }

  /** What the store says, in time. */
  #ask(client: string, came: number): Promise<RateLimiterRes> {
    return withDeadline(this.#store.consume(client, came), STORE_TIMEOUT_MS, late);
  }

  #failed(error: unknown): void {
    this.#metrics.storeFailed();
    const { message: reason } = causeOf(error);
    if (this.#logged.has(reason)) return;
    this.#logged.set(reason, true);
    this.#log.error({ store: this.#store.kind, reason }, 'rate limit store unavailable; counting per instance');
  }
}

const late = () => new Error(`no response within ${STORE_TIMEOUT_MS} ms`);

function unlessOver(error: unknown): void {
  if (!(error instanceof RateLimiterRes)) throw error;
}

function refusedHere(waitMs: number): Count {
  return { isProbable: false, decision: Promise.resolve(refused(waitMs)) };
}

function refused(waitMs: number): Decision {
  return { allowed: false, remaining: 0, waitMs };
}
