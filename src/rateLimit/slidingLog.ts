/**
 * What both stores share: each client's sliding log of counted requests, by the store's clock.
 *
 * A request is counted at the time at which it came, not at which the store got to it. So a store that was late, or hung and
 * then works off what it was sent, still counts each request in its own second, and a client that kept within the limit is
 * not refused for it afterwards. A request fits if no second that contains it then holds more than the limit.
 */
import { RateLimiterRes } from 'rate-limiter-flexible';

/** A client may send the limit's requests in any window of this length. */
export const WINDOW_MS = 1000;
const WINDOW_US = WINDOW_MS * 1000;

/**
 * The clock of the store's server, as far as this instance knows it from the store's responses. Times of the store are in
 * microseconds since 1970, those of this instance in milliseconds by `performance.now()`.
 */
export class StoreClock {
  /** Microseconds that it is ahead of ours, give or take the fastest round trip so far. */
  #ahead = Number.NEGATIVE_INFINITY;

  /** Returns what the clock showed at `came`; 0, which is long ago, before the first response. */
  at(came: number): number {
    return Math.max(0, Math.round(came * 1000 + this.#ahead));
  }

  /** Learns from a response to what was sent at `sent` and received now: at some time between, the clock showed `now`. */
  learn(sent: number, now: number): void {
    const [least, most] = [now - performance.now() * 1000, now - sent * 1000];
    this.#ahead = this.#ahead === Number.NEGATIVE_INFINITY ? most : Math.min(Math.max(this.#ahead, least), most);
  }

  /** Whether a request counted at `at` is out of every window at `now`: it came too long ago, or the clock was set. */
  static isPast(at: number, now: number): boolean {
    return at <= now - WINDOW_US;
  }
}

/** What the store says of a client after it has counted some of its requests, or refused to. */
export interface ClientWindow {
  /** The store's clock, in microseconds. */
  now: number;
  /** The counted requests of the last window. */
  recent: number;
  /** Milliseconds until a client that is at its limit may send another one. */
  waitMs: number;
}

/**
 * Returns the library's result for a request of a client that may send `points` in a window; more are consumed if the store
 * has not counted it. `later` says how many requests in the log came after it.
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
