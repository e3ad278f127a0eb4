/** Retries requests after transient failures. */
import { FetchError, ResponseError } from './generated/index.js';

/** How often a request is sent before its error is thrown. */
const MAX_ATTEMPTS = 5;
const MAX_WAIT_MS = 60_000;
const TRANSIENT_STATUSES = [429, 502, 503, 504];

/** Calls `send`, and retries after a 429, 502, 503, 504 or a broken connection. Calls it at most five times. */
export async function retrying<T>(send: () => Promise<T>, signal: () => AbortSignal | null | undefined): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    let wait = 500 * 2 ** (attempt - 1);
    try {
      return await send();
    } catch (error) {
      if (attempt === MAX_ATTEMPTS) throw error;
      if (error instanceof ResponseError) {
        if (!TRANSIENT_STATUSES.includes(error.response.status)) throw error;
        wait = retryAfter(error.response) ?? wait;
      } else if (!(error instanceof FetchError)) throw error;
    }
    await sleep(Math.min(wait, MAX_WAIT_MS), signal());
  }
}

/** Parses Retry-After, seconds or a date (RFC 9110 section 10.2.3). Returns milliseconds, or undefined if it is neither. */
function retryAfter({ headers }: Response): number | undefined {
  const value = headers.get('Retry-After') ?? '';
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
