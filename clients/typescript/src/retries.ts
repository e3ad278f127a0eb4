/** Retries requests after transient failures. */
import { FetchError, ResponseError } from './generated/index.js';

/** How often a request may fail before its error is thrown. Refusals by the rate limit do not count. */
const MAX_FAILURES = 5;
/** The longest wait before a retry, and by default the total of a call's waits. */
export const MAX_WAIT_MS = 60_000;
/** A random part of each wait, so that processes with the same key do not all retry at the same time. */
const MAX_RANDOM_MS = 500;
const RATE_LIMITED = 429;
const TRANSIENT_STATUSES = [502, 503, 504];

/**
 * Calls `send`, and retries after a 429, 502, 503, 504 or a broken connection, until it has waited `budget` milliseconds in
 * total. Fails after five failures other than a 429.
 */
export async function retrying<T>(
  send: () => Promise<T>,
  budget: number,
  signal: () => AbortSignal | null | undefined,
): Promise<T> {
  let failures = 0;
  for (let left = budget; ; ) {
    try {
      return await send();
    } catch (error) {
      const wait = Math.min(retryAfter(error) ?? 500 * 2 ** failures, MAX_WAIT_MS) + Math.random() * MAX_RANDOM_MS;
      if (!isRateLimited(error) && (++failures === MAX_FAILURES || !isTransient(error))) throw error;
      if (left <= 0) throw error;
      await sleep(Math.min(wait, left), signal());
      left -= wait;
    }
  }
}

export const isRateLimited = (error: unknown): boolean => statusOf(error) === RATE_LIMITED;

const statusOf = (error: unknown): number | undefined =>
  error instanceof ResponseError ? error.response.status : undefined;

const isTransient = (error: unknown): boolean =>
  error instanceof FetchError ? isBroken(error) : TRANSIENT_STATUSES.includes(statusOf(error) ?? 0);

/**
 * Tells whether a connection broke or was not made: Node's codes are then those of the system (`ECONNRESET`), of fetch
 * (`UND_ERR_SOCKET`) or of the parser (`HPE_…`). Other codes, such as those of certificates, are permanent. Browsers tell no
 * cause.
 */
function isBroken({ cause }: FetchError): boolean {
  const { code } = (cause.cause ?? cause) as { code?: string };
  return code === undefined ? cause.cause === undefined : /^(E(?!RR|PROTO)|UND_ERR_|HPE_)/.test(code);
}

/** Parses Retry-After, seconds or a date (RFC 9110 section 10.2.3). Returns milliseconds, or undefined if it is neither. */
function retryAfter(error: unknown): number | undefined {
  const value = (error instanceof ResponseError && error.response.headers.get('Retry-After')) || '';
  const wait = /^\d+$/.test(value) ? 1000 * Number(value) : Date.parse(value) - Date.now();
  return Number.isNaN(wait) ? undefined : Math.max(0, wait);
}

export function sleep(milliseconds: number, signal?: AbortSignal | null): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const end = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', end);
      resolve();
    }, milliseconds);
    signal?.addEventListener('abort', end, { once: true });
  });
}
