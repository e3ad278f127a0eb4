/**
 * The concurrency limit: bounds the requests that are worked on at once, and refuses the others immediately, since they
 * could not be served in time.
 */
import type { Metrics } from '../metrics.js';
import { unavailable } from '../problem/problem.js';

export interface ConcurrencyLimit {
  /**
   * Runs `work` for a request, which holds a place until `work` has ended: until its answer is handed to Node, not until a
   * slow client has taken it. A client that disconnects before that does not give the place back.
   * @throws the problem of a 503 where all places are taken
   */
  run(work: () => Promise<void>): Promise<void>;
}

/** Allows at most `most` requests to be worked on at once. */
export function createConcurrencyLimit(most: number, metrics: Metrics): ConcurrencyLimit {
  let taken = 0;
  return {
    async run(work) {
      if (taken >= most) throw unavailable('Too many requests are being worked on.');
      metrics.inFlight(++taken);
      await work().finally(() => metrics.inFlight(--taken));
    },
  };
}
