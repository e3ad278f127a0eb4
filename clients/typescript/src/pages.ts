/** All pages as one walk, at the pace that the service allows. */
import { type BrandedPhoneNumbersApi, ResponseError } from './api.js';
import {
  type BrandedPhoneNumber,
  type BrandedPhoneNumberPage,
  FetchError,
  type ListBrandedPhoneNumbersRequest,
} from './generated/index.js';

export interface WalkOptions {
  /** The most requests in any one second; walks over the same `api` share it. The service allows 10. */
  requestsPerSecond?: number;
  /** Ends the walk with an error, also while it waits. */
  signal?: AbortSignal;
}

/** How many times a page is requested before its error is thrown. */
const TRIES = 5;
const LONGEST_WAIT = 60_000;

/**
 * Every number that matches `filters`, page after page. After a 429, a 503 or a broken connection it waits and tries
 * again; a page is requested at most five times.
 */
export async function* eachNumber(
  api: BrandedPhoneNumbersApi,
  filters: ListBrandedPhoneNumbersRequest = {},
  options: WalkOptions = {},
): AsyncGenerator<BrandedPhoneNumber, void, undefined> {
  let page: BrandedPhoneNumberPage | undefined;
  do {
    page = await ask(api, { size: 100, ...filters, ...(page && { nextCursor: page.nextCursor }) }, options);
    yield* page.items;
  } while (page.nextCursor !== null);
}

async function ask(
  api: BrandedPhoneNumbersApi,
  request: ListBrandedPhoneNumbersRequest,
  { requestsPerSecond = 10, signal }: WalkOptions,
): Promise<BrandedPhoneNumberPage> {
  for (let attempt = 1; ; attempt++) {
    const release = await takeTurn(api, requestsPerSecond, signal);
    let wait = 500 * 2 ** (attempt - 1);
    try {
      return await api.listBrandedPhoneNumbers(request, signal ? { signal } : undefined);
    } catch (error) {
      if (attempt === TRIES) throw error;
      if (error instanceof ResponseError) {
        if (![429, 503].includes(error.response.status)) throw error;
        wait = retryAfter(error.response) ?? wait;
      } else if (!(error instanceof FetchError)) throw error;
    } finally {
      release();
    }
    await sleep(Math.min(wait, LONGEST_WAIT), signal);
  }
}

/** In milliseconds. It is sent in seconds, or as a date (RFC 9110 section 10.2.3). */
function retryAfter({ headers }: Response): number | undefined {
  const value = headers.get('Retry-After') ?? '';
  const wait = /^\d+$/.test(value) ? 1000 * Number(value) : Date.parse(value) - Date.now();
  return Number.isNaN(wait) ? undefined : Math.max(0, wait);
}

/** For each client: when each of its turns is free again. It has as many turns as requests are allowed in a second. */
const turns = new WeakMap<BrandedPhoneNumbersApi, number[]>();

/**
 * Waits for a turn and takes it. It is free again a second after the answer, not after the request was sent: the service
 * counts when a request arrives, and that may be as late as the answer.
 */
async function takeTurn(api: BrandedPhoneNumbersApi, perSecond: number, signal?: AbortSignal): Promise<() => void> {
  const free = turns.get(api) ?? [];
  turns.set(api, free);
  for (;;) {
    signal?.throwIfAborted();
    const now = performance.now();
    while (free.length < perSecond) free.push(now);
    const turn = free.findIndex((time, index) => time <= now && index < perSecond);
    if (turn >= 0) {
      free[turn] = Number.POSITIVE_INFINITY;
      return () => {
        free[turn] = performance.now() + 1000;
      };
    }
    // The turns of running requests have no time yet: look again soon.
    await sleep(Math.min(50, ...free.slice(0, perSecond).map((time) => time - now)), signal);
  }
}

function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
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
