/**
 * How long pages take without the rate limit, with named and random filters, on databases of several sizes. Times are
 * milliseconds of whole requests, as the client sees them.
 */
import type { ListBrandedPhoneNumbersRequest } from '../generated/types/apis/index.js';
import { filterOf } from '../src/page/filter.js';
import { encodeCursor } from '../src/service/request/cursor.js';
import { openExplainer } from '../test/support/explain.js';
import { phoneNumberAt } from '../test/support/generatedNumbers.js';
import { type Profiles, type Shape, shapesFor } from '../test/support/namedFilters.js';
import { randomFilters } from '../test/support/randomFilters.js';
import type { Server } from '../test/support/serverProcess.js';
import { type Quantiles, quantiles } from './medians.js';

export const PATH = '/v1/brandedPhoneNumbers';

/** Rounds in which each named filter is requested once; with 40, the p95 is not the maximum. */
const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 40);
/** How many times each random filter and lookup is requested. */
const REPEATS = 5;
const REPEAT_INTERVAL = Math.ceil(ROUNDS / REPEATS);
/** How many times the slowest filters are requested. */
const REPEATS_OF_SLOWEST = 30;
/** Rounds that are not measured, until every connection of the pool has prepared its statements. */
const WARM_UP_ROUNDS = 10;
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
  /** The named filters. */
  shapes: { shape: string; kind: Shape['kind']; times: Quantiles; buffers: number; items: number }[];
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
  url: string;
  profiles: Profiles;
  server: Server;
}

interface Page {
  url: string;
  /** 1 if it is requested in every round, 2 if in every second round, and so on. */
  interval: number;
  times: number[];
  failed: number;
}

/** Measures all sizes alternately, so that a momentary disturbance affects all alike. */
export async function measureLatencies(targets: Target[]): Promise<Latencies[]> {
  const opened = await Promise.all(targets.map(openTarget));
  const pages = alternate(opened.map((target) => target.pages));
  for (let round = 0; round < WARM_UP_ROUNDS; round++) {
    for (const { url } of alternate(opened.map(({ shapes }) => shapes.map(({ page }) => page)))) await timeRequest(url);
  }
  for (let round = 0; round < ROUNDS; round++) {
    if (round % 10 === 0) console.error(`  round ${round} of ${ROUNDS}`);
    for (const page of pages) if (round % page.interval === 0) await requestPage(page);
  }
  for (const { random } of opened) for (const { pages } of random) await repeatSlowest(pages);
  return opened.map(({ numbers, lookUps, shapes, random }) => ({
    numbers,
    lookUp: quantiles(lookUps.flatMap(({ times }) => times)).median,
    shapes: shapes.map(({ page, ...shape }) => ({ ...shape, times: quantiles(page.times) })),
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
async function openTarget({ size: numbers, url, profiles, server }: Target) {
  const middle = phoneNumberAt(Math.floor(numbers / 2));
  const pageOf = (request: ListBrandedPhoneNumbersRequest, after: string, interval: number): Page => ({
    url: `${server.url}${PATH}?${searchOf(request, after)}`,
    interval,
    times: [],
    failed: 0,
  });
  const explainer = openExplainer(url, 'force_generic_plan');
  const shapes = [];
  for (const { name, kind, request } of shapesFor(profiles)) {
    for (const after of ['', middle]) {
      const size = request.size ?? 25;
      const { buffers } = await explainer.explain({ filter: filterOf(request), visibleProfiles: null, after, size });
      const page = pageOf(request, after, 1);
      const response = await fetch(page.url);
      if (!response.ok) throw new Error(`${name}: ${response.status} ${await response.text()}`);
      const { items } = (await response.json()) as { items: unknown[] };
      shapes.push({ shape: after === '' ? name : `${name}, deep`, kind, buffers, items: items.length, page });
    }
  }
  await explainer.close();
  const random = KINDS.flatMap((kind) =>
    PAGE_SIZES.map((size) => ({
      kind,
      pageSize: size,
      pages: randomFilters(kind, FILTERS, SEED).flatMap((request) =>
        ['', middle].map((after) => pageOf({ ...request, size }, after, REPEAT_INTERVAL)),
      ),
    })),
  );
  const lookUps = Array.from({ length: LOOK_UPS }, (_, index) => {
    const phoneNumber = phoneNumberAt(1 + Math.floor((index * numbers) / LOOK_UPS));
    return pageOf({ phoneNumber }, '', REPEAT_INTERVAL);
  });
  const pages = [...shapes.map(({ page }) => page), ...random.flatMap(({ pages }) => pages), ...lookUps];
  return { numbers, shapes, random, lookUps, pages };
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
