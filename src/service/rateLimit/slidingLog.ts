/**
 * The parts that both stores share. A store keeps a sliding log for each client: the times of its counted requests, by the
 * store's clock.
 *
 * - A request is counted at the time when an instance received it, not when the store processed it. So after a store was slow,
 *   its backlog does not cause clients within their limits to be refused.
 * - A request fits if no window has more requests than the limit after it is counted.
 * - If the store's clock was set back, times in its future become the current time: otherwise, clients would be blocked until
 *   those times.
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
  /** How far the store's clock is ahead of this instance's, in microseconds; the error is at most the fastest round trip so far. */
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

/** A client's window after the store has counted or refused some of its requests. */
export interface ClientWindow {
  /** The number of counted requests in the window that ends now. */
  recent: number;
  /** Milliseconds until a client at its limit may send another request. */
  waitMs: number;
}

/**
 * Returns rate-limiter-flexible's result for a request, with a limit of `points` in a window. If the store refused the
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
