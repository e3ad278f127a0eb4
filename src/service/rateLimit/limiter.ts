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
 * N instances without their store allow up to N times the limit. The same is true for one second after the store lost its
 * data or its clock was set forward.
 *
 * # Why not rate-limiter-flexible's own parts
 *
 * - `insuranceLimiter` would be a `RateLimiterMemory`: its fixed windows allow almost twice the limit around their edge, and
 *   it starts at 0 when the store fails.
 * - `inMemoryBlockOnConsumed` visits all blocked clients whenever it adds one: 1.4 s of CPU time for 20,000 clients.
 * - `RLWrapperTimeouts` rejects a response that arrived in time while the process was busy.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import { RateLimiterRes } from 'rate-limiter-flexible';
import { causeOf } from '../../database/errors.js';
import { withDeadline } from '../../deadline.js';
import type { Log } from '../../log.js';
import type { Metrics } from '../../metrics.js';
import { UserError } from '../../userError.js';
import { type ProblemError, problem } from '../problem/problem.js';
import { WINDOW_MS } from './slidingLog.js';

/** A store that all instances share: a sliding log of each client's requests, by the store's clock. */
export interface LimitStore {
  readonly kind: string;
  /**
   * Counts a client's request that was received at `receivedAt`, by `performance.now()`. Rejects with the result if the
   * client was over its limit then.
   * @throws {UserError} if the failure is permanent (wrong password, missing privilege)
   */
  consume(client: string, receivedAt: number): Promise<RateLimiterRes>;
  /** Starts to remove idle clients periodically, if the store does not expire them itself. */
  startSweeping?(): void;
  close(): Promise<void>;
}

/** Whether a request is allowed, and what its client may send next. */
export interface Decision {
  allowed: boolean;
  /** The number of requests that the client may still send. */
  remaining: number;
  /** Milliseconds until the client may send more requests; at most the window. */
  waitMs: number;
}

/** A request that is being counted. */
export interface Count {
  /** Whether the request will probably be allowed; false if this instance refuses it by its own log. */
  isLikelyAllowed: boolean;
  /** Never rejects. */
  decision: Promise<Decision>;
}

/** The count of a request from an unidentified client. */
export const UNCOUNTED = refuseLocally(WINDOW_MS);

/** The store's time limit, so that a request is decided within 250 ms even on a busy machine. */
export const STORE_TIMEOUT_MS = 150;
/** More clients than an instance can serve in a window. Beyond that, the least recently counted client is forgotten. */
const MAX_CLIENTS = 50_000;
/** At startup: the pause between attempts to reach the store, and the time after which the start continues without it. */
const WARM_UP_PAUSE_MS = 100;
const WARM_UP_TIMEOUT_MS = 2000;
/** Client ids used only to probe the store at startup: enough of them that one belongs to each node of a Redis Cluster. */
const PROBES = Array.from({ length: 16 }, (_, i) => `start ${i}`);
/** The interval at which the same failure of the store is logged again. */
const LOG_INTERVAL_MS = 60_000;

/** A request that this instance has allowed, before the store decided. */
interface LocallyAllowed {
  receivedAt: number;
  isRefusedByStore: boolean;
}

/** Allows each client a number of requests in any window. */
export class RateLimiter {
  readonly #store: LimitStore;
  readonly #points: number;
  /** For each client, the requests that this instance allowed in the last window. A new request removes older ones. */
  readonly #requests = new LRUCache<string, readonly LocallyAllowed[]>({ max: MAX_CLIENTS });
  /** Clients that the store has refused, until it may allow them another request. */
  readonly #refusedClients = new LRUCache<string, true>({ max: MAX_CLIENTS });
  readonly #loggedReasons = new LRUCache<string, true>({ max: 100, ttl: LOG_INTERVAL_MS });
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
   * Connects to the store, so that the first requests are as fast as later ones; retries for two seconds if it does not
   * respond. Then starts its sweeps.
   * @throws {UserError} if the failure is permanent (wrong password, missing privilege)
   */
  async warmUp(): Promise<void> {
    const deadline = performance.now() + WARM_UP_TIMEOUT_MS;
    for (;;) {
      try {
        await Promise.all(PROBES.map((client) => this.#consume(client, performance.now()).catch(ignoreRefusal)));
        break;
      } catch (error) {
        if (error instanceof UserError) throw error;
        if (performance.now() >= deadline) {
          this.#noteFailure(error);
          break;
        }
      }
      await sleep(WARM_UP_PAUSE_MS);
    }
    this.#store.startSweeping?.();
  }

  /**
   * Counts a request of `client`, and decides within 250 ms whether it is allowed. Per client and window, `isLikelyAllowed` is
   * true for at most the limit's number of requests that are then refused.
   */
  count(client: string): Count {
    const receivedAt = performance.now();
    const { isLikelyAllowed, decision } = this.#count(client, receivedAt);
    const measured = decision.then((settled) => {
      this.#metrics.observeDecision(settled.allowed, (performance.now() - receivedAt) / 1000);
      return settled;
    });
    return { isLikelyAllowed, decision: measured };
  }

  /** Returns the limit's response headers. */
  headersOf({ remaining, waitMs }: Decision): Record<string, string> {
    return {
      'RateLimit-Policy': `"default";q=${this.#points};w=${WINDOW_MS / 1000}`,
      RateLimit: `"default";r=${remaining};t=${wholeSeconds(waitMs)}`,
    };
  }

  /** Returns the 429 problem for a refused request. */
  refusalOf({ waitMs }: Decision): ProblemError {
    const seconds = wholeSeconds(waitMs);
    const pause = `${seconds} second${seconds === 1 ? '' : 's'}`;
    const detail = `At most ${this.#points} requests in any one second. Try again in ${pause}.`;
    return problem('rate-limit-exceeded', detail, { headers: { 'Retry-After': String(seconds) } });
  }

  close(): Promise<void> {
    return this.#store.close();
  }

  #count(client: string, receivedAt: number): Count {
    const refusedMs = this.#refusedClients.getRemainingTTL(client);
    if (refusedMs > 0) return refuseLocally(refusedMs);
    const recent = (this.#requests.get(client) ?? []).filter((request) => request.receivedAt > receivedAt - WINDOW_MS);
    const allowed = recent.filter(({ isRefusedByStore }) => !isRefusedByStore);
    const waitMs = (allowed[0]?.receivedAt ?? receivedAt) + WINDOW_MS - receivedAt;
    if (allowed.length >= this.#points) return refuseLocally(waitMs);
    const request = { receivedAt, isRefusedByStore: false };
    const isLikelyAllowed = recent.length < this.#points;
    this.#requests.set(client, [...recent, request]);
    const localDecision = { allowed: true, remaining: this.#points - allowed.length - 1, waitMs };
    return { isLikelyAllowed, decision: this.#decide(client, request, localDecision) };
  }

  /** Returns the store's decision, or `localDecision` if the store does not respond in time. */
  async #decide(client: string, request: LocallyAllowed, localDecision: Decision): Promise<Decision> {
    try {
      const { remainingPoints, msBeforeNext } = await this.#consume(client, request.receivedAt);
      return { allowed: true, remaining: Math.min(remainingPoints, localDecision.remaining), waitMs: msBeforeNext };
    } catch (error) {
      if (!(error instanceof RateLimiterRes)) {
        this.#noteFailure(error);
        return localDecision;
      }
      request.isRefusedByStore = true;
      const waitMs = Math.min(Math.max(1, error.msBeforeNext), WINDOW_MS);
      // Until then, the client's requests are refused without asking the store.
      this.#refusedClients.set(client, true, { ttl: waitMs });
      return refusal(waitMs);
    }
  }

  /** Counts a request in the store, within the store's time limit. */
  #consume(client: string, receivedAt: number): Promise<RateLimiterRes> {
    return withDeadline(this.#store.consume(client, receivedAt), STORE_TIMEOUT_MS, timeoutError);
  }

  /** Counts and logs a failure of the store; the same reason at most once in LOG_INTERVAL_MS. */
  #noteFailure(error: unknown): void {
    this.#metrics.countStoreFailure();
    const { message: reason } = causeOf(error);
    if (this.#loggedReasons.has(reason)) return;
    this.#loggedReasons.set(reason, true);
    this.#log.error({ store: this.#store.kind, reason }, 'rate limit store unavailable; counting per instance');
  }
}

function timeoutError(): Error {
  return new Error(`no response within ${STORE_TIMEOUT_MS} ms`);
}

/** Ignores the result of a probe that the store refused: it has responded. */
function ignoreRefusal(error: unknown): void {
  if (!(error instanceof RateLimiterRes)) throw error;
}

function refuseLocally(waitMs: number): Count {
  return { isLikelyAllowed: false, decision: Promise.resolve(refusal(waitMs)) };
}

function refusal(waitMs: number): Decision {
  return { allowed: false, remaining: 0, waitMs };
}

/** Rounds up, so that a client that waits this long is allowed. */
function wholeSeconds(milliseconds: number): number {
  return Math.max(1, Math.ceil(milliseconds / 1000));
}
