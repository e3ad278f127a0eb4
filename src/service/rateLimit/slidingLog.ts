/**
 * What both stores have in common: a sliding log of each client's counted requests, by the store's clock.
 *
 * A request is counted at the time when an instance received it, not when the store processed it. So a store that was slow or
 * hung, and then processes its backlog, counts each request in the right second, and a client within its limit is not refused
 * afterwards. A request fits if, with it, no window has more than the limit.
 */
import { RateLimiterRes } from 'rate-limiter-flexible';

/** The length of the window for which the limit is set. */
export const WINDOW_MS = 1000;
const WINDOW_US = WINDOW_MS * 1000;

/**
 * An estimate of the store's clock, from the store's responses. Times of the store are in microseconds since 1970, times of
 * this instance in milliseconds by `performance.now()`.
 */
export class StoreClock {
  /** How far the store's clock is ahead, in microseconds; the error is at most the fastest round trip so far. */
  #ahead = Number.NEGATIVE_INFINITY;

  /** Converts a time of this instance to the store's clock; 0, which is before any window, until the first response. */
  at(time: number): number {
    return Math.max(0, Math.round(time * 1000 + this.#ahead));
  }

  /** Improves the estimate: the clock showed `now` at some time since `sentAt`, when the request was sent. */
  learn(sentAt: number, now: number): void {
    const [min, max] = [now - performance.now() * 1000, now - sentAt * 1000];
    this.#ahead = this.#ahead === Number.NEGATIVE_INFINITY ? max : Math.min(Math.max(this.#ahead, min), max);
  }

  /** Tells whether `time` is before the window that ends at `now`, both by the store's clock. */
  static isPast(time: number, now: number): boolean {
    return time <= now - WINDOW_US;
  }
}

/** A client's window after the store has counted some of its requests or refused them. */
export interface ClientWindow {
  /** The store's clock, in microseconds. */
  now: number;
  /** The number of counted requests in the window that ends now. */
  recent: number;
  /** Milliseconds until a client at its limit may send another request. */
  waitMs: number;
}

/**
 * Returns rate-limiter-flexible's result for a request, with a limit of `points` in a window. If the store has not counted the
 * request, `points` + 1 are consumed. `later` is the number of requests in the window that were received after it.
 */
export function resultOf(
  { recent, waitMs }: ClientWindow,
  points: number,
  isCounted: boolean,
  later = 0,
): RateLimiterRes {
  const consumed = isCounted ? Math.max(1, recent - later) : points + 1;
  return new RateLimiterRes(Math.max(0, points - consumed), Math.max(0, waitMs), consumed, consumed === 1);
}
