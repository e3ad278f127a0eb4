/**
 * Who may pass, decided in time whatever the shared store does.
 *
 * While the store answers, it decides. While it doesn't, each instance admits its share of the limit: the limit divided
 * by the instances that were alive when the store last answered. So that no second ever sees more than the limit:
 * - in the outage's first second, where there are several instances, nobody passes, since nobody knows whom the others
 *   let pass in the second before; a single instance knows and goes on without a gap;
 * - for two seconds after the outage both the store and the share have to agree, since the store knows nothing of what
 *   passed meanwhile, and the instances notice its return at different times.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { RateLimiterRes } from 'rate-limiter-flexible';
import { AdmissionLog } from './admissionLog.js';
import type { Log } from './log.js';
import type { Metrics } from './metrics.js';
import { causeOf } from './reader.js';

/** A store of counted requests that all instances share. */
export interface LimitStore {
  readonly kind: string;
  /** Counts a request; rejects with a RateLimiterRes when the client is over its limit, with an Error when in trouble. */
  count(client: string): Promise<RateLimiterRes>;
  /** Says that the instance lives; answers how many have said so in the last `patience` ms. */
  countInstances(instance: string, patience: number): Promise<number>;
  /** Says that the instance is about to end. */
  leave(instance: string): Promise<void>;
  /** Calls `report` when the store is known to be lost before a request shows it. */
  onLoss(report: () => void): void;
  /** Leaves connections that may hang, to ask anew. */
  reopen(): void;
  close(): Promise<void>;
}

export interface Decision {
  allowed: boolean;
  /** Requests left. */
  remaining: number;
  /** Milliseconds until there are more. */
  wait: number;
}

/** Milliseconds that the store has for an answer, so that a request is decided within 250 on a busy machine, too. */
export const PATIENCE = 150;
/** Milliseconds between two attempts to reach a store in trouble. */
const PROBE_PAUSE = 250;
/** Milliseconds after an outage in which the share still holds: a window, and until the last instance has noticed. */
const CAUTION = 2000;
/** Milliseconds between two signs of life of an instance, and after the last of which it counts as gone. */
const HEARTBEAT = 2000;
const GONE = 3 * HEARTBEAT;
/** A start waits for so many answers of the store at once, or so many milliseconds. */
const WARM_CONNECTIONS = 3;
const WARM_UP_LIMIT = 2000;

export class RateLimiter {
  readonly #store: LimitStore;
  readonly #points: number;
  readonly #window: number;
  readonly #admitted: AdmissionLog;
  readonly #log: Log;
  readonly #metrics: Metrics;
  readonly #id = randomUUID();
  readonly #heart: NodeJS.Timeout;
  /** Undefined until the store has told. */
  #instances: number | undefined;
  #outageSince: number | undefined;
  #cautiousUntil = 0;
  #lastAnswer = 0;
  #closed = false;

  /** A limit of `points` requests in `window` seconds, shared through `store`, which is closed with the limiter. */
  constructor(store: LimitStore, points: number, window: number, log: Log, metrics: Metrics) {
    this.#store = store;
    this.#points = points;
    this.#window = window * 1000;
    this.#admitted = new AdmissionLog(this.#window);
    this.#log = log;
    this.#metrics = metrics;
    this.#heart = setInterval(() => this.#beat(), HEARTBEAT).unref();
    store.onLoss(() => this.#beginOutage('the connection was lost'));
  }

  /** Makes the connections to the store and hears of the other instances; gives up after a while, but never rejects. */
  async warmUp(): Promise<void> {
    await Promise.race([
      Promise.all(Array.from({ length: WARM_CONNECTIONS }, () => this.#beat())),
      sleep(WARM_UP_LIMIT),
    ]);
  }

  /** Whether a request of `client` will most likely pass, by what this instance knows; costs the store nothing. */
  isLikelyToPass(client: string): boolean {
    return this.#outageSince === undefined && this.#admitted.hasRoom(client, this.#points);
  }

  /** Decides within 250 ms whether a request of `client` passes, and counts it if so. Never rejects. */
  async decide(client: string): Promise<Decision> {
    const begin = performance.now();
    this.#admitted.begin(client);
    const decision = this.#outageSince === undefined ? await this.#askStore(client) : this.#decideAlone(client);
    this.#admitted.end(client, decision.allowed);
    this.#metrics.limited(decision.allowed, (performance.now() - begin) / 1000);
    return decision;
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#heart);
    this.#admitted.close();
    if (this.#outageSince === undefined) await inTime(this.#store.leave(this.#id)).catch(() => {});
    await this.#store.close();
  }

  async #askStore(client: string): Promise<Decision> {
    const asked = performance.now();
    try {
      const { remainingPoints, msBeforeNext } = await inTime(this.#store.count(client));
      this.#lastAnswer = performance.now();
      const mayPass = this.#lastAnswer >= this.#cautiousUntil || this.#admitted.count(client) < this.#share;
      if (mayPass) return { allowed: true, remaining: remainingPoints, wait: msBeforeNext };
      return { allowed: false, remaining: 0, wait: this.#admitted.wait(client) };
    } catch (reason) {
      if (reason instanceof RateLimiterRes) {
        const isFromMemory = reason.consumedPoints === 0;
        if (!isFromMemory) this.#lastAnswer = performance.now();
        return { allowed: false, remaining: 0, wait: reason.msBeforeNext };
      }
      this.#metrics.storeFailed(this.#store.kind);
      // Others were answered meanwhile, so the store is there; this one may have been counted or not.
      if (this.#lastAnswer > asked) return this.#decideOne(client);
      this.#beginOutage(causeOf(reason).message);
      return this.#decideAlone(client);
    }
  }

  /** A single instance knows all that has passed, and holds on to it until what the store may have missed is over. */
  #decideOne(client: string): Decision {
    if (this.#instances !== 1) return { allowed: false, remaining: 0, wait: this.#window };
    this.#cautiousUntil = Math.max(this.#cautiousUntil, performance.now() + this.#window);
    return this.#decideAlone(client);
  }

  #decideAlone(client: string): Decision {
    const since = performance.now() - (this.#outageSince ?? 0);
    if (this.#instances !== 1 && since < this.#window) {
      return { allowed: false, remaining: 0, wait: this.#window - since };
    }
    const remaining = this.#share - this.#admitted.count(client) - 1;
    return { allowed: remaining >= 0, remaining: Math.max(0, remaining), wait: this.#admitted.wait(client) };
  }

  /** What this instance may admit by itself. One at least, so that it serves at all; one where nothing is known. */
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
    this.#probeLater();
  }

  #probeLater(): void {
    setTimeout(async () => {
      if (this.#closed) return;
      try {
        // It writes, as counting a request does, so a store that can't be written is not taken for a good one.
        await inTime(this.#store.countInstances(this.#id, GONE));
        this.#endOutage();
      } catch {
        this.#metrics.storeFailed(this.#store.kind);
        this.#store.reopen();
        this.#probeLater();
      }
    }, PROBE_PAUSE).unref();
  }

  #endOutage(): void {
    const now = performance.now();
    const seconds = Math.round((now - (this.#outageSince ?? now)) / 100) / 10;
    this.#outageSince = undefined;
    this.#cautiousUntil = now + CAUTION;
    this.#metrics.storeUp(true);
    this.#log.info({ store: this.#store.kind, seconds }, 'the rate limit store answers again');
  }

  /** Failures are for the requests to find. */
  async #beat(): Promise<void> {
    if (this.#outageSince !== undefined) return;
    try {
      this.#instances = await this.#store.countInstances(this.#id, GONE);
    } catch {}
  }
}

/** Rejects what takes too long. After a stall of this process, an answer that has come meanwhile still counts. */
function inTime<T>(answer: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      setImmediate(() => reject(new Error(`no answer within ${PATIENCE} ms`)));
    }, PATIENCE);
    answer.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
