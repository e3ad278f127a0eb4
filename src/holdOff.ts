/**
 * Refusing costs half as much as answering, so those who ask again as fast as they are refused would leave nothing for
 * the others. Beyond so many refusals a second, the connection that got one is not read for as long as its client was
 * told to wait: what comes meanwhile stays in the network and slows its sender down.
 */
import type { Request, Response } from 'express';

/** Refusals a second that hold nobody off: about a twentieth of a core. */
const FREE = 200;
/** Milliseconds that a connection is not read. */
const PAUSE = 1000;

/** What holds off the client of a request that is being refused for want of capacity, where many are. */
export function createHoldOff(): (request: Request, response: Response) => void {
  let since = 0;
  let refusals = 0;
  return ({ socket }, response) => {
    const now = performance.now();
    if (now - since > 1000) [since, refusals] = [now, 0];
    if (++refusals <= FREE) return;
    response.once('finish', () => {
      socket.pause();
      setTimeout(() => socket.resume(), PAUSE).unref();
    });
  };
}
