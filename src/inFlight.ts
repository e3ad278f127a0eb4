/** A bound on the requests that are worked on at once: what can't be served in time is refused at once. */
import type { RequestHandler } from 'express';
import { createHoldOff } from './holdOff.js';
import type { Metrics } from './metrics.js';
import { unavailable } from './problem.js';

/** Refuses with 503 what comes while `most` requests are being worked on. */
export function boundInFlight(most: number, metrics: Metrics): RequestHandler {
  let inFlight = 0;
  const holdOff = createHoldOff();
  return (request, response, next) => {
    if (inFlight >= most) {
      holdOff(request, response);
      throw unavailable('Too many requests are being worked on.');
    }
    metrics.inFlight(++inFlight);
    let isOver = false;
    const leave = () => metrics.inFlight(--inFlight);
    const end = () => {
      if (isOver) return;
      isOver = true;
      // A page that is read ahead of the limit's decision may outlive its request.
      const { reading } = response.locals as { reading?: Promise<void> };
      if (reading) void reading.then(leave);
      else leave();
    };
    // An answer that is handed to the system is done with, however slowly it is read; one that is given up closes.
    response.once('finish', end).once('close', end);
    next();
  };
}
