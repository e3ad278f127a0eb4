/**
 * How long pages take without the rate limit, with random filters, on databases of several sizes. Times are milliseconds of
 * whole requests, as the client sees them.
 */
import type { ListBrandedPhoneNumbersRequest } from '../generated/types/apis/index.js';
import { filterOf } from '../src/page/filter.js';
import { encodeCursor } from '../src/service/request/cursor.js';
import { phoneNumberAt } from '../test/support/generatedNumbers.js';
import { randomFilters } from '../test/support/randomFilters.js';
import type { Server } from '../test/support/serverProcess.js';
import { type Quantiles, quantiles } from './medians.js';

export const PATH = '/v1/brandedPhoneNumbers';

/** How many times each filter and lookup is requested, after a round that is not measured: connections prepare statements. */
const ROUNDS = 5;
/** How many times the slowest filters are requested. */
const REPEATS_OF_SLOWEST = 30;
/** Random filters of each kind and page size. */
const FILTERS = Number(process.env.BENCH_FILTERS ?? 150);
const SEED = Number(process.env.BENCH_SEED ?? 1);
const KINDS = ['one attribute', 'several attributes'] as const;
const PAGE_SIZES = [25, 100];
/** Phone numbers that are looked up. */
const LOOK_UPS = 20;

/** The results at one database size. */
export interface Latencies {
  numbers: number;
  /** The median of lookups of one phone number. */
  lookUp: number;
  /** The random filters. */
  random: RandomPages[];
}

/** First pages and deep ones of all random filters of one kind. */
export interface RandomPages {
  kind: (typeof KINDS)[number];
  pageSize: number;
  pages: number;
  /** Quantiles of the pages' medians. */
  times: Quantiles & { worst: number };
  /** The query string of the slowest page. */
  slowest: string;
  /** Requests without a 200 response. */
  failed: number;
}

/** A database of generated phone numbers, and the service on it. */
export interface Target {
  size: number;
  server: Server;
}

interface Page {
  url: string;
  times: number[];
  failed: number;
}

/** Measures all sizes alternately, so that a momentary disturbance affects all alike. */
export async function measureLatencies(targets: Target[]): Promise<Latencies[]> {
  const opened = targets.map(pagesOf);
  const pages = alternate(opened.map((target) => target.pages));
  for (const { url } of pages) await timeRequest(url);
  for (let round = 1; round <= ROUNDS; round++) {
    console.error(`  round ${round} of ${ROUNDS}`);
    for (const page of pages) await requestPage(page);
  }
  for (const { random } of opened) for (const { pages } of random) await repeatSlowest(pages);
  return opened.map(({ numbers, lookUps, random }) => ({
    numbers,
    lookUp: quantiles(lookUps.flatMap(({ times }) => times)).median,
    random: random.map(({ kind, pageSize, pages }) => {
      const medians = pages.map(medianOf);
      const worst = Math.max(...medians);
      const times = { ...quantiles(medians), worst };
      const slowest = new URL(pages[medians.indexOf(worst)]?.url ?? '').search;
      const failed = pages.reduce((sum, page) => sum + page.failed, 0);
      return { kind, pageSize, pages: pages.length, times, slowest, failed };
    }),
  }));
}

/** Returns the first element of each list, then the second of each, and so on. */
function alternate<T>(lists: T[][]): T[] {
  return (lists[0] ?? []).flatMap((_, index) => lists.flatMap((list) => list.slice(index, index + 1)));
}

const medianOf = ({ times }: Page) => quantiles(times).median;

async function requestPage(page: Page): Promise<void> {
  const { milliseconds, isOk } = await timeRequest(page.url);
  page.times.push(milliseconds);
  if (!isOk) page.failed++;
}

/** Requests `url`, and prints a response that is not a success. */
export async function timeRequest(url: string): Promise<{ milliseconds: number; isOk: boolean }> {
  const start = performance.now();
  const response = await fetch(url);
  const body = await response.text();
  const milliseconds = performance.now() - start;
  if (!response.ok) console.error(`${url}: ${response.status} after ${Math.round(milliseconds)} ms, ${body}`);
  return { milliseconds, isOk: response.ok };
}

/**
 * Requests the page with the highest median again, until that page has been requested `REPEATS_OF_SLOWEST` times. After a
 * few requests each, some of hundreds of pages look slow only because of noise.
 */
async function repeatSlowest(pages: Page[]): Promise<void> {
  for (;;) {
    const slowest = pages.reduce((a, b) => (medianOf(b) > medianOf(a) ? b : a));
    if (slowest.times.length >= REPEATS_OF_SLOWEST) return;
    await requestPage(slowest);
  }
}

/** Returns the pages to request: for each filter, the first page and a deep one from the middle of all phone numbers. */
function pagesOf({ size: numbers, server }: Target) {
  const middle = phoneNumberAt(Math.floor(numbers / 2));
  const pageOf = (request: ListBrandedPhoneNumbersRequest, after: string): Page => ({
    url: `${server.url}${PATH}?${searchOf(request, after)}`,
    times: [],
    failed: 0,
  });
  const random = KINDS.flatMap((kind) =>
    PAGE_SIZES.map((size) => ({
      kind,
      pageSize: size,
      pages: randomFilters(kind, FILTERS, SEED).flatMap((request) =>
        ['', middle].map((after) => pageOf({ ...request, size }, after)),
      ),
    })),
  );
  const lookUps = Array.from({ length: LOOK_UPS }, (_, index) => {
    const phoneNumber = phoneNumberAt(1 + Math.floor((index * numbers) / LOOK_UPS));
    return pageOf({ phoneNumber }, '');
  });
  return { numbers, random, lookUps, pages: [...random.flatMap(({ pages }) => pages), ...lookUps] };
}

/** Returns the query string of a request for the page after the phone number `after`, or for the first page. */
export function searchOf(request: ListBrandedPhoneNumbersRequest, after = ''): URLSearchParams {
  const search = new URLSearchParams();
  for (const [name, values] of Object.entries(request)) {
    for (const value of [values].flat()) search.append(name, String(value));
  }
  if (after !== '') search.append('nextCursor', encodeCursor(after, filterOf(request)));
  return search;
}
