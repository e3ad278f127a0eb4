/** The rate limit as clients see it: the headers of each answer, and the refusal. */
import { type ProblemError, problem } from '../problem/problem.js';
import { type Decision, WINDOW_MS } from './limiter.js';

/** Header fields by their names. */
export type Headers = Readonly<Record<string, string>>;

/** The headers of draft-ietf-httpapi-ratelimit-headers for a limit of `points` requests in a window. */
export function headersOf({ remaining, waitMs }: Decision, points: number): Headers {
  return {
    'RateLimit-Policy': `"default";q=${points};w=${WINDOW_MS / 1000}`,
    RateLimit: `"default";r=${remaining};t=${wholeSeconds(waitMs)}`,
  };
}

/** The problem of a 429, with the same headers and when to try again. */
export function refusalOf(decision: Decision, points: number): ProblemError {
  const seconds = wholeSeconds(decision.waitMs);
  const pause = `${seconds} second${seconds === 1 ? '' : 's'}`;
  return problem('rate-limit-exceeded', `At most ${points} requests in any one second. Try again in ${pause}.`, {
    headers: { ...headersOf(decision, points), 'Retry-After': String(seconds) },
  });
}

/** Rounded up, so that a client that waits that long is let through. */
function wholeSeconds(milliseconds: number): number {
  return Math.max(1, Math.ceil(milliseconds / 1000));
}
