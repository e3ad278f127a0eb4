/**
 * The concurrency limit: bounds how many list requests are processed at once. Further requests wait for a slot, and are
 * rejected if none frees up in time. If they were rejected at once, clients would retry at once, and rejecting them would
 * take most of the CPU time. A request takes a slot only after its client is identified, so that requests with unknown keys
 * can't occupy all slots.
 */
import type { Metrics } from '../../metrics.js';
import { unavailable } from '../problem/problem.js';

/** How long a request waits for a slot. */
const WAIT_MS = 500;

export interface ConcurrencyLimit {
  /**
   * Runs `work` in a slot, which is freed when `work` ends: when the response is passed to Node, even if a slow client
   * has not received it. It is not freed earlier if the client disconnects.
   * @throws {ProblemError} a 503 if no slot frees up in time
   */
  run(work: () => Promise<void>): Promise<void>;
}

/** Creates a limit of `slots` list requests at once. */
export function createConcurrencyLimit(slots: number, metrics: Metrics): ConcurrencyLimit {
  /** For each waiting request, a function that gives it a slot; the request that has waited longest is first. */
  const waiting = new Set<() => void>();
  let occupied = 0;

  function waitForSlot(): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        waiting.delete(takeSlot);
        reject(unavailable('Too many requests are being processed.'));
      }, WAIT_MS);
      function takeSlot() {
        clearTimeout(timer);
        resolve();
      }
      waiting.add(takeSlot);
    });
  }

  function freeSlot(): void {
    const [next] = waiting;
    if (next) {
      waiting.delete(next);
      next();
    } else {
      metrics.setInFlight(--occupied);
    }
  }

  return {
    async run(work) {
      if (occupied >= slots) await waitForSlot();
      else metrics.setInFlight(++occupied);
      await work().finally(freeSlot);
    },
  };
}
