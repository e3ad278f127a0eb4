/** Reads all pages within the rate limit, or one page if it has changed. */
import { type BrandedPhoneNumbersApi, ResponseError } from './api.js';
import type { BrandedPhoneNumber, BrandedPhoneNumberPage, ListBrandedPhoneNumbersRequest } from './generated/index.js';
import { paceOf } from './pacing.js';

export interface WalkOptions {
  /** The most requests in any one second, for all walks with the same `api`. The service allows 10 by default. */
  requestsPerSecond?: number;
  /** Ends the walk with an error, even while it waits. */
  signal?: AbortSignal;
}

/**
 * Yields every page of the numbers that match `filters`, from the first page or the one that `filters.nextCursor` leads to.
 * The `nextCursor` of a page leads to the page after it, so a walk that ended there is resumed with
 * `eachPage(api, { ...filters, nextCursor })`. Each page is retried as any other call.
 */
export async function* eachPage(
  api: BrandedPhoneNumbersApi,
  filters: ListBrandedPhoneNumbersRequest = {},
  { requestsPerSecond = 10, signal }: WalkOptions = {},
): AsyncGenerator<BrandedPhoneNumberPage, void, undefined> {
  const paced = api.withPace((send) => paceOf(api).run(requestsPerSecond, signal, send));
  let request = { size: 100, ...filters };
  const sent = new Set([filters.nextCursor]);
  for (;;) {
    const response = await paced.listBrandedPhoneNumbersRaw(request, signal ? { signal } : undefined);
    const page = await response.value();
    const { nextCursor } = page;
    if (nextCursor !== null && sent.has(nextCursor)) throw repeatedCursor(response.raw, page);
    yield page;
    if (nextCursor === null) return;
    sent.add(nextCursor);
    request = { ...request, nextCursor };
  }
}

/** Returns the error of a page whose cursor leads back to a page that the walk has read: without it, the walk would not end. */
function repeatedCursor(response: Response, page: BrandedPhoneNumberPage): ResponseError {
  const body = JSON.stringify(page);
  return new ResponseError(new Response(body, response), body, `the nextCursor ${page.nextCursor} repeats`);
}

/** Yields every number that matches `filters`, page after page. */
export async function* eachNumber(
  api: BrandedPhoneNumbersApi,
  filters: ListBrandedPhoneNumbersRequest = {},
  options: WalkOptions = {},
): AsyncGenerator<BrandedPhoneNumber, void, undefined> {
  for await (const page of eachPage(api, filters, options)) yield* page.items;
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
