/**
 * Decides which requests are allowed, in bounded time, whatever the shared store does.
 *
 * # Algorithm
 *
 * A request is allowed if this instance has allowed fewer than the limit of its client's requests in the last second, and the
 * store has room for it as well or is unavailable. So each instance enforces the limit alone while the store is down, and the
 * transition loses no counts.
 *
 * # Known limitation
 *
 * - N instances without their store allow up to N times the limit. The same is true for one second after the store lost its
 *   data or its clock was set forward.
 * - The store counts a request when it processes it. So for one second after the store was late or came back, a client
 *   within its limit may be refused.
 *
 * # Why not rate-limiter-flexible's own parts
 *
 * - `insuranceLimiter` would be a `RateLimiterMemory`: its fixed windows allow almost twice the limit around their edge, and
 *   it starts at 0 when the store fails.
 * - `inMemoryBlockOnConsumed` visits all blocked clients whenever it adds one: 1.4 s of CPU time for 20,000 clients.
 * - `RLWrapperTimeouts` rejects a response that arrived in time while the process was busy.
 */
import { LRUCache } from 'lru-cache';
import { RateLimiterRes } from 'rate-limiter-flexible';
import { causeOf } from '../../database/errors.js';
import { retryInOutage } from '../../database/outage.js';
import type { Log } from '../../log.js';
import type { Metrics } from '../../metrics.js';
import { UserError } from '../../userError.js';
import { type ProblemError, problem } from '../problem/problem.js';

/** A store that all instances share: a sliding log of each client's requests, by the store's clock. */
export interface LimitStore {
  readonly kind: string;
  /**
   * Counts a client's request if its last second has room for it; otherwise rejects with the result. A request that is
   * still unsent after STORE_TIMEOUT_MS is not counted.
   * @throws {UserError} if the failure is permanent (wrong password, missing privilege)
   */
  consume(client: string): Promise<RateLimiterRes>;
  /** Starts to remove idle clients periodically, if the store does not expire them itself. */
  startSweeping?(): void;
  close(): Promise<void>;
}

/** A store's decision on a request. */
export interface Counted {
  /** The number of requests in the client's last second, up to this one; more than the limit if it was refused. */
  consumed: number;
  /** Milliseconds until the oldest of them is a second old. */
  waitMs: number;
}

/** Returns rate-limiter-flexible's result for a limit of `points`. */
export function resultOf({ consumed, waitMs }: Counted, points: number): RateLimiterRes {
  return new RateLimiterRes(Math.max(0, points - consumed), waitMs, consumed, consumed === 1);
}

/** Whether a request is allowed, and how many more its client may send now. */
export interface Decision {
  allowed: boolean;
  remaining: number;
}

interface Count {
  /** Whether the request will probably be allowed, so that its page may be begun. */
  isLikelyAllowed: boolean;
  /** Never rejects. */
  decision: Promise<Decision>;
}

export const WINDOW_MS = 1000;
/** The window in seconds, the unit of headers. It is also the wait that they name, which is at most a window, rounded up. */
const WINDOW_SECONDS = WINDOW_MS / 1000;

export const REFUSED: Decision = { allowed: false, remaining: 0 };
/** The count of a request that is refused without asking the store. */
const REFUSED_COUNT: Count = { isLikelyAllowed: false, decision: Promise.resolve(REFUSED) };

/** The store's time limit, so that a request is decided within 250 ms even on a busy machine. */
export const STORE_TIMEOUT_MS = 150;
/** More clients than an instance can serve in a window. Beyond that, the least recently counted client is forgotten. */
const MAX_CLIENTS = 50_000;
/** At startup: the pause between attempts to reach the store, and the time after which the start continues without it. */
const WARM_UP_PAUSE_MS = 100;
const WARM_UP_TIMEOUT_MS = 2000;
/** Client ids used only to probe the store at startup: enough of them that one belongs to each node of a Redis Cluster. */
const PROBES = Array.from({ length: 16 }, (_, i) => `start ${i}`);
const LOG_INTERVAL_MS = 60_000;

/** Allows each client a number of requests in any window. */
export class RateLimiter {
  readonly #store: LimitStore;
  readonly #points: number;
  /** For each client, when this instance received the requests that it allowed, in the window that ends with the latest. */
  readonly #receivedAt = new LRUCache<string, readonly number[]>({ max: MAX_CLIENTS });
  /** Clients that the store has refused in the last window, and when it may allow them another request. */
  readonly #refusedUntil = new LRUCache<string, number>({ max: MAX_CLIENTS, ttl: WINDOW_MS });
  readonly #loggedReasons = new LRUCache<string, true>({ max: 100, ttl: LOG_INTERVAL_MS });
  /** When the store last failed, by `performance.now()`; undefined if its return is in the log. */
  #failedAt: number | undefined;
  #isClosed = false;
  readonly #log: Log;
  readonly #metrics: Metrics;

  /** Creates a limit of `points` requests in a window, shared through `store`, which is closed with the limiter. */
  constructor(store: LimitStore, points: number, log: Log, metrics: Metrics) {
    this.#store = store;
    this.#points = points;
    this.#log = log;
    this.#metrics = metrics;
  }

  /**
   * Connects to the store, so that the first requests are as fast as later ones; retries for 2 s. Then starts its sweeps.
   * @throws {UserError} if the failure is permanent (wrong password, missing privilege)
   */
  async warmUp(): Promise<void> {
    const probe = () => Promise.all(PROBES.map((client) => this.#consume(client).catch(ignoreRefusal)));
    const mayPass = (error: unknown) => !(error instanceof UserError);
    await retryInOutage(probe, { forMs: WARM_UP_TIMEOUT_MS, everyMs: WARM_UP_PAUSE_MS, mayPass }).catch((error) => {
      if (!mayPass(error)) throw error;
      this.#noteFailure(error);
    });
    this.#store.startSweeping?.();
  }

  /**
   * Counts a request of `client`, and decides within 250 ms whether it is allowed. In any window, `isLikelyAllowed` is true
   * for at most the limit's number of the client's requests, so that no more pages are begun for requests that are refused.
   */
  count(client: string): Count {
    const receivedAt = performance.now();
    const count = this.#count(client, receivedAt);
    void count.decision.then(({ allowed }) => {
      this.#metrics.observeDecision(allowed, (performance.now() - receivedAt) / 1000);
    });
    return count;
  }

  headersOf({ remaining }: Decision): Record<string, string> {
    return {
      'RateLimit-Policy': `"default";q=${this.#points};w=${WINDOW_SECONDS}`,
      RateLimit: `"default";r=${remaining};t=${WINDOW_SECONDS}`,
    };
  }

  /** Returns the 429 problem for a refused request. */
  refusal(): ProblemError {
    const detail = `At most ${this.#points} requests in any one second. Try again in ${WINDOW_SECONDS} second.`;
    return problem('rate-limit-exceeded', detail, { headers: { 'Retry-After': String(WINDOW_SECONDS) } });
  }

  close(): Promise<void> {
    this.#isClosed = true;
    return this.#store.close();
  }

  #count(client: string, receivedAt: number): Count {
    const refusedUntil = this.#refusedUntil.get(client);
    if (refusedUntil !== undefined && refusedUntil > receivedAt) return REFUSED_COUNT;
    const recent = (this.#receivedAt.get(client) ?? []).filter((time) => time > receivedAt - WINDOW_MS);
    if (recent.length >= this.#points) return REFUSED_COUNT;
    this.#receivedAt.set(client, [...recent, receivedAt]);
    const localDecision = { allowed: true, remaining: this.#points - recent.length - 1 };
    // A client that was refused in the last window is probably still over its limit.
    return { isLikelyAllowed: refusedUntil === undefined, decision: this.#decide(client, receivedAt, localDecision) };
  }

  /** Returns the store's decision, or `localDecision` if the store does not respond in time. */
  async #decide(client: string, receivedAt: number, localDecision: Decision): Promise<Decision> {
    try {
      const { remainingPoints } = await this.#consume(client);
      return { allowed: true, remaining: Math.min(remainingPoints, localDecision.remaining) };
    } catch (error) {
      if (!(error instanceof RateLimiterRes)) {
        this.#noteFailure(error);
        return localDecision;
      }
      // This request was recorded as allowed when it was received.
      const allowed = this.#receivedAt.get(client)?.filter((time) => time !== receivedAt);
      this.#receivedAt.set(client, allowed ?? []);
      // Until then, requests are refused without asking the store, which decided at some time after `receivedAt`.
      this.#refusedUntil.set(client, receivedAt + error.msBeforeNext);
      return REFUSED;
    }
  }

  async #consume(client: string): Promise<RateLimiterRes> {
    const result = await withTimeLimit(this.#store.consume(client));
    if (this.#failedAt !== undefined) this.#noteReturn(this.#failedAt);
    return result;
  }

  /** Counts and logs a failure of the store; the same reason at most once in LOG_INTERVAL_MS. */
  #noteFailure(error: unknown): void {
    if (this.#isClosed) return;
    this.#metrics.countStoreFailure();
    this.#failedAt = performance.now();
    const { message: reason } = causeOf(error);
    if (this.#loggedReasons.has(reason)) return;
    this.#loggedReasons.set(reason, true);
    this.#log.error({ store: this.#store.kind, reason }, 'rate limit store unavailable; counting per instance');
  }

  /** Logs that the store is back, once it has not failed for a window: from then on, its counts are complete. */
  #noteReturn(failedAt: number): void {
    if (performance.now() - failedAt < WINDOW_MS) return;
    this.#failedAt = undefined;
    this.#loggedReasons.clear();
    this.#log.info({ store: this.#store.kind }, 'rate limit store available again');
  }
}

/**
 * Settles like `operation`, but after STORE_TIMEOUT_MS rejects. A response that arrives in time is used even if this process
 * is too busy to read it in time. p-timeout would create an error with its stack at each call, also if it is not needed.
 */
function withTimeLimit<T>(operation: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    // After a stall, timers run first; then responses that have arrived are read; then setImmediate runs.
    const timer = setTimeout(() => setImmediate(() => reject(timeoutError())), STORE_TIMEOUT_MS);
    void operation.then(resolve, reject).then(() => clearTimeout(timer));
  });
}

/** Returns the error of a request that the store did not count in time. */
export function timeoutError(): Error {
  return new Error(`no response within ${STORE_TIMEOUT_MS} ms`);
}

/** Ignores the result of a probe that the store refused: it has responded. */
function ignoreRefusal(error: unknown): void {
  if (!(error instanceof RateLimiterRes)) throw error;
}
