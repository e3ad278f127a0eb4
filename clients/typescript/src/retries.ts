/** Requests that are sent again when they fail for a reason that passes. */
import { FetchError, ResponseError } from './generated/index.js';

/** How many times a request is sent before its error is thrown. */
const TRIES = 5;
const LONGEST_WAIT = 60_000;
const PASSING = [429, 502, 503, 504];

/** Calls `send`, up to five times while it fails with a 429, 502, 503, 504 or a broken connection. */
export async function retrying<T>(send: () => Promise<T>, signal: () => AbortSignal | null | undefined): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    let wait = 500 * 2 ** (attempt - 1);
    try {
      return await send();
    } catch (error) {
      if (attempt === TRIES) throw error;
      if (error instanceof ResponseError) {
        if (!PASSING.includes(error.response.status)) throw error;
        wait = retryAfter(error.response) ?? wait;
      } else if (!(error instanceof FetchError)) throw error;
    }
    await sleep(Math.min(wait, LONGEST_WAIT), signal());
  }
}

/** In milliseconds. It is sent in seconds, or as a date (RFC 9110 section 10.2.3). */
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
