/**
 * The concurrency limit: bounds the pages that are worked on at once. Further requests wait for a slot, and are rejected if
 * none frees up in time: to reject them at once would take most of the time that pages need, since rejected clients retry.
 * Nothing holds a slot before its client is identified, so unknown keys can't keep others out.
 */
import type { Metrics } from '../metrics.js';
import { unavailable } from '../problem/problem.js';

/** How long a request waits for a slot. */
const WAIT_MS = 500;

export interface ConcurrencyLimit {
  /**
   * Runs `work` for a request, which holds a slot until `work` has ended: until its response is handed to Node, not until a
   * slow client has taken it. A client that disconnects before that does not free the slot.
   * @throws the problem of a 503 if no slot frees up in time
   */
  run(work: () => Promise<void>): Promise<void>;
}

/** Creates a limit of `slots` pages that are worked on at once. */
export function createConcurrencyLimit(slots: number, metrics: Metrics): ConcurrencyLimit {
  const waiting: (() => void)[] = [];
  let taken = 0;

  function slotOfAnother(): Promise<void> {
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
      if (taken >= slots) await slotOfAnother();
      else metrics.inFlight(++taken);
      await work().finally(() => {
        const next = waiting.shift();
        if (next) next();
        else metrics.inFlight(--taken);
      });
    },
  };
}
