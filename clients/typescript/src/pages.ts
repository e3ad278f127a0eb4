/** All pages as one walk, at the pace that the service allows. */
import {
  type BrandedPhoneNumber,
  type BrandedPhoneNumberPage,
  type BrandedPhoneNumbersApi,
  type ListBrandedPhoneNumbersRequest,
  ResponseError,
} from './generated/index.js';

export interface WalkOptions {
  /** The most requests in any one second; walks over the same `api` share it. The service allows 10. */
  requestsPerSecond?: number;
  /** Ends the walk with an error, also while it waits. */
  signal?: AbortSignal;
}

/** Every number that matches `filters`, page after page, waiting where the rate limit asks for it. */
export async function* eachNumber(
  api: BrandedPhoneNumbersApi,
  filters: ListBrandedPhoneNumbersRequest = {},
  options: WalkOptions = {},
): AsyncGenerator<BrandedPhoneNumber, void, undefined> {
  let page: BrandedPhoneNumberPage | undefined;
  do {
    page = await ask(api, { size: 100, ...filters, ...(page && { nextCursor: page.nextCursor ?? '' }) }, options);
    yield* page.items;
  } while (page.nextCursor !== null);
}

async function ask(
  api: BrandedPhoneNumbersApi,
  request: ListBrandedPhoneNumbersRequest,
  { requestsPerSecond = 10, signal }: WalkOptions,
): Promise<BrandedPhoneNumberPage> {
  for (;;) {
    const release = await takeTurn(api, requestsPerSecond, signal);
    try {
      return await api.listBrandedPhoneNumbers(request, signal ? { signal } : undefined);
    } catch (error) {
      if (!(error instanceof ResponseError) || error.response.status !== 429) throw error;
      await sleep(1000 * (Number(error.response.headers.get('Retry-After')) || 1), signal);
    } finally {
      release();
    }
  }
}

/** For each client: when each of its turns is free again. It has as many turns as requests are allowed in a second. */
const turns = new WeakMap<BrandedPhoneNumbersApi, number[]>();

/**
 * Waits for a turn and takes it. It is free again a second after its answer, not after its sending: the service counts
 * when a request arrives, and that may be as late as the answer.
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
