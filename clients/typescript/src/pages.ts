/** Reads all pages within the rate limit, or one page if it has changed. */
import { type BrandedPhoneNumbersApi, ResponseError } from './api.js';
import type { BrandedPhoneNumber, BrandedPhoneNumberPage, ListBrandedPhoneNumbersRequest } from './generated/index.js';
import { retrying, sleep } from './retries.js';

export interface WalkOptions {
  /** The most requests in any one second, for all calls with the same `api`. The service allows 10 by default. */
  requestsPerSecond?: number;
  /** Ends the iteration with an error, even while it waits. */
  signal?: AbortSignal;
}

/**
 * Yields every number that matches `filters`, page after page. Waits and retries after a 429, 502, 503, 504 or a broken
 * connection, and requests a page at most five times.
 */
export async function* eachNumber(
  api: BrandedPhoneNumbersApi,
  filters: ListBrandedPhoneNumbersRequest = {},
  { requestsPerSecond = 10, signal }: WalkOptions = {},
): AsyncGenerator<BrandedPhoneNumber, void, undefined> {
  const once = api.withoutRetry();
  let page: BrandedPhoneNumberPage | undefined;
  do {
    const request = { size: 100, ...filters, ...(page && { nextCursor: page.nextCursor }) };
    const send = async () => {
      const release = await takeSlot(api, requestsPerSecond, signal);
      try {
        return await once.listBrandedPhoneNumbers(request, signal ? { signal } : undefined);
      } finally {
        release();
      }
    };
    page = await retrying(send, () => signal);
    yield* page.items;
  } while (page.nextCursor !== null);
}

/** A page, and the `ETag` that identifies this version of it. */
export interface TaggedPage {
  page: BrandedPhoneNumberPage;
  /** Null if a proxy has removed it. */
  etag: string | null;
}

/**
 * Returns a page with its `etag`, or undefined if it has not changed since it had this `etag` (304 Not Modified). Without an
 * `etag`, always returns the page.
 */
export async function pageIfChanged(
  api: BrandedPhoneNumbersApi,
  etag: string | null | undefined,
  filters: ListBrandedPhoneNumbersRequest = {},
  { signal }: { signal?: AbortSignal } = {},
): Promise<TaggedPage | undefined> {
  try {
    const response = await api.listBrandedPhoneNumbersRaw(filters, async ({ init }) => ({
      headers: { ...init.headers, ...(etag && { 'If-None-Match': etag }) },
      ...(signal && { signal }),
    }));
    return { page: await response.value(), etag: response.raw.headers.get('ETag') };
  } catch (error) {
    if (error instanceof ResponseError && error.response.status === 304) return undefined;
    throw error;
  }
}

/** For each client: the time at which each of its slots becomes free; infinity while a request uses it. */
const slots = new WeakMap<BrandedPhoneNumbersApi, number[]>();

/**
 * Waits for a slot, takes it, and returns a function that frees it. A slot becomes free one second after the response, not
 * after the request was sent: the service counts a request when it arrives, which may be just before the response.
 */
async function takeSlot(api: BrandedPhoneNumbersApi, perSecond: number, signal?: AbortSignal): Promise<() => void> {
  const free = slots.get(api) ?? [];
  slots.set(api, free);
  for (;;) {
    signal?.throwIfAborted();
    const now = performance.now();
    while (free.length < perSecond) free.push(now);
    const slot = free.findIndex((time, index) => time <= now && index < perSecond);
    if (slot >= 0) {
      free[slot] = Number.POSITIVE_INFINITY;
      return () => {
        free[slot] = performance.now() + 1000;
      };
    }
    // It is unknown when running requests end, so check again soon.
    await sleep(Math.min(50, ...free.slice(0, perSecond).map((time) => time - now)), signal);
  }
}
