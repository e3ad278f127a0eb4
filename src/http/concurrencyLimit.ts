/**
 * The concurrency limit: bounds the requests that are worked on at once, and refuses the others immediately, since they
 * could not be served in time. When many are refused, their connections get backpressure.
 */
import type { Request, Response } from 'express';
import type { Metrics } from '../metrics.js';
import { unavailable } from '../problem/problem.js';

/** Refusals a second before backpressure begins; they take about a twentieth of a core. */
const FREE_REFUSALS = 200;
const REFUSALS_WINDOW_MS = 1000;
/** How long backpressure stops reading a connection: the `Retry-After` of a refusal. */
const BACKPRESSURE_MS = 1000;

export interface ConcurrencyLimit {
  /**
   * Runs `work` for a request, which holds a place until `work` has ended, even if its client disconnects before that,
   * and until its response is closed, which may be later.
   * @throws the problem of a 503 where all places are taken
   */
  run(request: Request, response: Response, work: () => Promise<void>): Promise<void>;
}

/** Allows at most `most` requests to be worked on at once. */
export function createConcurrencyLimit(most: number, metrics: Metrics): ConcurrencyLimit {
  const slowDown = createBackpressure();
  let taken = 0;
  return {
    async run(request, response, work) {
      if (taken >= most) {
        slowDown(request, response);
        throw unavailable('Too many requests are being worked on.');
      }
      metrics.inFlight(++taken);
      let holders = 2;
      const release = () => {
        if (--holders === 0) metrics.inFlight(--taken);
      };
      // Emitted once the answer has been handed to the operating system, even if the client reads it slowly, or aborted.
      response.once('close', release);
      await work().finally(release);
    },
  };
}

/**
 * Refusing costs half as much as answering, so clients that retry as soon as they are refused would leave nothing for
 * the others. Beyond `FREE_REFUSALS` a second, a refused connection is not read for the time of its `Retry-After`: what
 * the client sends meanwhile stays in the network's buffers, which slows the client down.
 */
function createBackpressure(): (request: Request, response: Response) => void {
  let since = 0;
  let refusals = 0;
  return ({ socket }, response) => {
    const now = performance.now();
    if (now - since > REFUSALS_WINDOW_MS) [since, refusals] = [now, 0];
    if (++refusals <= FREE_REFUSALS) return;
    response.once('finish', () => {
      socket.pause();
      setTimeout(() => socket.resume(), BACKPRESSURE_MS).unref();
    });
  };
}
