/** How long each shape takes and what it reads, on one database. */
import { closeDatabase, openDatabase } from '../src/database.js';
import { filterOf } from '../src/filter.js';
import { preparePages } from '../src/query.js';
import { openExplainer } from './explain.js';
import type { Server } from './server.js';
import { type Owners, type Shape, shapesFor } from './shapes.js';

export interface Latency {
  shape: string;
  kind: Shape['kind'];
  /** Milliseconds: of the query seen from node, and of the request seen by its client where one was sent. */
  database: Quantiles;
  request?: Quantiles;
  /** The p99 of every other round, and of the rounds between: as far as they differ, it is the machine. */
  halves: [number, number];
  rows: number;
  buffers: number;
  /** How many numbers the page shows. */
  items: number;
}

export interface Quantiles {
  median: number;
  p95: number;
  p99: number;
}

/** Rounds of all shapes: enough for a p99 that is not the maximum. Whole requests, which take longer, have a quarter. */
const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 400);
const PATH = '/v1/brandedPhoneNumbers';

/** A database of some size, and the service on it. */
export interface Target {
  size: number;
  url: string;
  owners: Owners;
  server: Server;
  /** A phone number in the middle of all. */
  middle: string;
}

/**
 * Times all shapes at all sizes, each for its first page and one from the middle of the numbers, in rounds: what disturbs
 * the machine for a moment hits one shape no more than others, and one size no more than others.
 */
export async function measureLatency(targets: Target[]): Promise<Record<string, Latency[]>> {
  const opened = await Promise.all(targets.map(openTarget));
  // One after the other, since what a service does after an answer would disturb the statement that comes next.
  for (const [part, rounds] of [
    ['database', ROUNDS],
    ['request', ROUNDS / 4],
  ] as const) {
    for (let round = -5; round < rounds; round++) {
      // Each case at every size in a row, so that sizes are compared under the same conditions.
      for (const index of opened[0]?.cases.keys() ?? []) {
        for (const { cases } of opened) {
          const { work, times } = cases[index] ?? {};
          if (!work?.[part]) continue;
          const time = await timed(work[part]);
          if (round >= 0) times?.[part].push(time);
        }
      }
    }
  }
  await Promise.all(opened.map(({ close }) => close()));
  return Object.fromEntries(
    opened.map(({ size, cases }) => [
      size,
      cases.map(({ work, times, ...latency }) => ({
        ...latency,
        database: quantiles(times.database),
        ...(work.request && { request: quantiles(times.request) }),
        halves: [0, 1].map((half) => quantiles(times.database.filter((_, round) => round % 2 === half)).p99) as [
          number,
          number,
        ],
      })),
    ]),
  );
}

async function openTarget({ size, url, owners, server, middle }: Target) {
  const database = openDatabase(url, { connections: 1 });
  const readPage = preparePages(database);
  const explainer = openExplainer(url, 'force_generic_plan');
  const cases = [];
  for (const { name, kind, request } of shapesFor(owners)) {
    for (const after of ['', middle]) {
      const page = { filter: filterOf(request), visibleProfiles: null, after, size: request.size ?? 25 };
      const { rows, buffers } = await explainer.explain(page);
      const { count: items } = await readPage(page);
      // A cursor into the middle is had by walking there, which would take hours: only the database is timed there.
      const path = after === '' ? `${server.url}${PATH}?${searchOf(request)}` : undefined;
      const shape = after === '' ? name : `${name}, deep`;
      const work = {
        database: () => readPage(page),
        request: path === undefined ? undefined : async () => (await fetch(path)).arrayBuffer(),
      };
      const times = { database: [] as number[], request: [] as number[] };
      cases.push({ shape, kind, rows, buffers, items, work, times });
    }
  }
  await explainer.close();
  return { size, cases, close: () => closeDatabase(database) };
}

function searchOf(request: Shape['request']): URLSearchParams {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(request)) {
    for (const each of [value].flat()) search.append(name, String(each));
  }
  return search;
}

async function timed(work: () => PromiseLike<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

export function quantiles(times: number[]): Quantiles {
  const sorted = times.toSorted((a, b) => a - b);
  const at = (part: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN;
  return { median: at(0.5), p95: at(0.95), p99: at(0.99) };
}
