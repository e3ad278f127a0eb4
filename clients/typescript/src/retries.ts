/** Retries requests after transient failures. */
import { FetchError, ResponseError } from './generated/index.js';

/** The least wait before the first retry. It doubles with each retry. */
const FIRST_WAIT_MS = 500;
/** Bounds the doubling, so that a call soon notices that the service is back. */
const MAX_DOUBLED_WAIT_MS = 8_000;
/** A random part of each wait, so that processes with the same key do not all retry at the same time. */
const MAX_RANDOM_MS = 500;
const RATE_LIMITED = 429;
const TRANSIENT_STATUSES = [RATE_LIMITED, 502, 503, 504];

/** Calls `send` when the rate limit allows it. */
export type Pacing = <T>(send: () => Promise<T>) => Promise<T>;

/**
 * Calls `send` through `pace`, and retries after a 429, 502, 503, 504 or a broken connection, until `send` and the waits before
 * retries would take more than `retryFor` milliseconds in total. What `pace` waits does not count.
 */
export async function retrying<T>(
  send: () => Promise<T>,
  pace: Pacing,
  retryFor: number,
  signal: () => AbortSignal | null | undefined,
): Promise<T> {
  let left = retryFor;
  for (let least = FIRST_WAIT_MS; ; least = Math.min(2 * least, MAX_DOUBLED_WAIT_MS)) {
    let began = 0;
    try {
      return await pace(() => {
        began = performance.now();
        return send();
      });
    } catch (error) {
      const wait = Math.max(retryAfter(error), least) + Math.random() * MAX_RANDOM_MS;
      left -= performance.now() - began + wait;
      if (left < 0 || !isTransient(error)) throw error;
      await sleep(wait, signal());
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

/** Parses Retry-After, seconds or a date (RFC 9110 section 10.2.3). Returns milliseconds, or 0 if it is neither. */
function retryAfter(error: unknown): number {
  const value = (error instanceof ResponseError && error.response.headers.get('Retry-After')) || '';
  const wait = /^\d+$/.test(value) ? 1000 * Number(value) : Date.parse(value) - Date.now();
  return Number.isNaN(wait) ? 0 : wait;
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
