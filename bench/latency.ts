/** How long whole requests take, without the limit: the named shapes and random filters, on databases of several sizes. */
import type { ListBrandedPhoneNumbersRequest } from '../generated/types/apis/index.js';
import { filterOf } from '../src/page/filter.js';
import { encodeCursor } from '../src/service/request/cursor.js';
import { openExplainer } from '../test/support/explain.js';
import { phoneNumberAt } from '../test/support/generatedNumbers.js';
import type { Server } from '../test/support/measuredServer.js';
import { type Profiles, type Shape, shapesFor } from '../test/support/namedFilters.js';
import { randomFilters } from '../test/support/randomFilters.js';

/** Rounds of all named shapes; enough for a p95 that is not the maximum. */
const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 40);
/** How many times each random filter is asked, and how many times the slowest are; the median counts. */
const REPEATS = 5;
const REPEATS_OF_SLOWEST = 30;
/** Rounds before measuring: by then every connection of the pool has prepared its statements. */
const WARM_UP_ROUNDS = 10;
/** Random filters of each kind and page size, each asked for its first page and a deep one. */
const FILTERS = Number(process.env.BENCH_FILTERS ?? 150);
const SEED = Number(process.env.BENCH_SEED ?? 1);
const LOOK_UPS = 20;
const KINDS = ['one attribute', 'several attributes'] as const;
export const PATH = '/v1/brandedPhoneNumbers';

/** What was measured at one size; times are milliseconds of whole requests, as the client sees them. */
export interface Latencies {
  numbers: number;
  /** The median of requests for one phone number each. */
  lookUp: number;
  shapes: { shape: string; kind: Shape['kind']; times: Quantiles; buffers: number; items: number }[];
  random: RandomPages[];
}

/** Over the median of each filter's repeats. */
export interface RandomPages {
  kind: (typeof KINDS)[number];
  pageSize: number;
  pages: number;
  times: Quantiles & { worst: number };
  /** The query string that took longest. */
  slowest: string;
  /** Answers other than 200. */
  failed: number;
}

export interface Quantiles {
  median: number;
  p95: number;
  p99: number;
}

/** A database of some size, and the service on it. */
export interface Target {
  size: number;
  url: string;
  profiles: Profiles;
  server: Server;
}

interface Case {
  url: string;
  isRandom: boolean;
  times: number[];
  failed: number;
}

/**
 * Asks everything at all sizes in rounds, so that a momentary disturbance of the machine does not hit one shape or size
 * more than the others. The random filters are asked only every few rounds.
 */
export async function measureLatencies(targets: Target[]): Promise<Latencies[]> {
  const opened = await Promise.all(targets.map(openTarget));
  const cases = opened.map(({ all }) => all);
  for (let round = -WARM_UP_ROUNDS; round < ROUNDS; round++) {
    if (round % 10 === 0) console.error(`  round ${round} of ${ROUNDS}`);
    const isWithRandom = round >= 0 && round % Math.ceil(ROUNDS / REPEATS) === 0;
    for (const index of cases[0]?.keys() ?? []) {
      for (const { [index]: each } of cases) {
        if (!each || (each.isRandom && !isWithRandom)) continue;
        const milliseconds = await time(each);
        if (round >= 0) each.times.push(milliseconds);
      }
    }
  }
  for (const { random } of opened) for (const { asked } of random) await settleSlowest(asked);
  return opened.map(({ numbers, lookUps, shapes, random }) => ({
    numbers,
    lookUp: quantiles(lookUps.flatMap(({ times }) => times)).median,
    shapes: shapes.map(({ asked, ...shape }) => ({ ...shape, times: quantiles(asked.times) })),
    random: random.map(({ kind, pageSize, asked }) => {
      const medians = asked.map(({ times }) => quantiles(times).median);
      const worst = Math.max(...medians);
      return {
        kind,
        pageSize,
        pages: asked.length,
        times: { ...quantiles(medians), worst },
        slowest: new URL(asked[medians.indexOf(worst)]?.url ?? '').search,
        failed: asked.reduce((sum, { failed }) => sum + failed, 0),
      };
    }),
  }));
}

/** Milliseconds of one request. */
async function time(asked: Case): Promise<number> {
  const start = performance.now();
  const response = await fetch(asked.url);
  const body = await response.text();
  const milliseconds = performance.now() - start;
  if (!response.ok) {
    asked.failed++;
    console.error(`${asked.url}: ${response.status} after ${Math.round(milliseconds)} ms, ${body}`);
  }
  return milliseconds;
}

/**
 * Asks the slowest filter again until the slowest is one that was asked many times: among hundreds of filters that are
 * asked a few times each, noise makes some look slow that are not.
 */
async function settleSlowest(cases: Case[]): Promise<void> {
  const medianOf = ({ times }: Case) => quantiles(times).median;
  for (;;) {
    const slowest = cases.reduce((one, other) => (medianOf(other) > medianOf(one) ? other : one));
    if (slowest.times.length >= REPEATS_OF_SLOWEST) return;
    slowest.times.push(await time(slowest));
  }
}

async function openTarget({ size: numbers, url, profiles, server }: Target) {
  const middle = phoneNumberAt(Math.floor(numbers / 2));
  const explainer = openExplainer(url, 'force_generic_plan');
  const ask = (request: ListBrandedPhoneNumbersRequest, after: string, isRandom: boolean): Case => ({
    url: `${server.url}${PATH}?${searchOf(request, after)}`,
    isRandom,
    times: [],
    failed: 0,
  });
  const shapes = [];
  for (const { name, kind, request } of shapesFor(profiles)) {
    for (const after of ['', middle]) {
      const size = request.size ?? 25;
      const { buffers } = await explainer.explain({ filter: filterOf(request), visibleProfiles: null, after, size });
      const asked = ask(request, after, false);
      const response = await fetch(asked.url);
      if (!response.ok) throw new Error(`${name}: ${response.status} ${await response.text()}`);
      const { items } = (await response.json()) as { items: unknown[] };
      shapes.push({ shape: after === '' ? name : `${name}, deep`, kind, buffers, items: items.length, asked });
    }
  }
  await explainer.close();
  const random = KINDS.flatMap((kind) =>
    [25, 100].map((pageSize) => ({
      kind,
      pageSize,
      asked: randomFilters(kind, FILTERS, SEED).flatMap((request) =>
        ['', middle].map((after) => ask({ ...request, size: pageSize }, after, true)),
      ),
    })),
  );
  const lookUps = Array.from({ length: LOOK_UPS }, (_, index) =>
    ask({ phoneNumber: phoneNumberAt(1 + Math.floor((index * numbers) / LOOK_UPS)) }, '', true),
  );
  const all = [...shapes.map(({ asked }) => asked), ...random.flatMap(({ asked }) => asked), ...lookUps];
  return { numbers, shapes, random, lookUps, all };
}

/** The query string of a request for the page after the number `after`; '' for the first page. */
export function searchOf(request: ListBrandedPhoneNumbersRequest, after = ''): URLSearchParams {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(request)) {
    for (const each of [value].flat()) search.append(name, String(each));
  }
  if (after !== '') search.append('nextCursor', encodeCursor(after, filterOf(request)));
  return search;
}

export function quantiles(times: number[]): Quantiles {
  const sorted = times.toSorted((a, b) => a - b);
  const at = (part: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN;
  return { median: at(0.5), p95: at(0.95), p99: at(0.99) };
}
