/**
 * The concurrency limit: bounds the requests that are worked on at once. The others wait their turn for a moment, and are
 * refused where it does not come: to refuse at once would take most of the time that answers need, since clients that are
 * refused ask again.
 */
import type { Metrics } from '../metrics.js';
import { unavailable } from '../problem/problem.js';

/** How long a request waits for a place. */
const WAIT_MS = 500;

export interface ConcurrencyLimit {
  /**
   * Runs `work` for a request, which holds a place until `work` has ended: until its answer is handed to Node, not until a
   * slow client has taken it. A client that disconnects before that does not give the place back.
   * @throws the problem of a 503 where no place becomes free in time
   */
  run(work: () => Promise<void>): Promise<void>;
}

/** Allows at most `most` requests to be worked on at once. */
export function createConcurrencyLimit(most: number, metrics: Metrics): ConcurrencyLimit {
  const waiting: (() => void)[] = [];
  let taken = 0;

  function placeOfAnother(): Promise<void> {
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => {
        // All wait equally long.
        waiting.shift();
        reject(unavailable('Too many requests are being worked on.'));
      }, WAIT_MS);
      waiting.push(() => {
        clearTimeout(late);
        resolve();
      });
    });
  }

  return {
    async run(work) {
      if (taken >= most) await placeOfAnother();
      else metrics.inFlight(++taken);
      await work().finally(() => {
        const next = waiting.shift();
        if (next) next();
        else metrics.inFlight(--taken);
      });
    },
  };
}
