/** Pages: all of them as one walk, at the pace that the service allows; and one, if it has changed. */
import { type BrandedPhoneNumbersApi, ResponseError } from './api.js';
import type { BrandedPhoneNumber, BrandedPhoneNumberPage, ListBrandedPhoneNumbersRequest } from './generated/index.js';
import { retrying, sleep } from './retries.js';

export interface WalkOptions {
  /** The most requests in any one second; walks over the same `api` share it. The service allows 10. */
  requestsPerSecond?: number;
  /** Ends the walk with an error, also while it waits. */
  signal?: AbortSignal;
}

/**
 * Every number that matches `filters`, page after page. After a 429, 502, 503, 504 or a broken connection it waits and
 * tries again; a page is requested at most five times.
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
      const release = await takeTurn(api, requestsPerSecond, signal);
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
 * A page with its `etag`; or undefined if it is still the one with this `etag` ("304 Not Modified"). Without an `etag`
 * it is always the page.
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

/** For each client: when each of its turns is free again. It has as many turns as requests are allowed in a second. */
const turns = new WeakMap<BrandedPhoneNumbersApi, number[]>();

/**
 * Waits for a turn and takes it. It is free again a second after the response, not after the request was sent: the service
 * counts when a request arrives, and that may be as late as the response.
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
