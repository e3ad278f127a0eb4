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
  /** Milliseconds: of the query seen from node, and of the request seen by its client. */
  database: Quantiles;
  request: Quantiles;
  rows: number;
  buffers: number;
}

export interface Quantiles {
  median: number;
  p99: number;
}

/** Rounds of all shapes: enough for a p99 that is not the maximum. */
const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 200);
const PATH = '/v1/brandedPhoneNumbers';

/**
 * Times all shapes, each for its first page and one from the middle of the numbers, in rounds, so that what disturbs the
 * machine for a moment does not hit one shape alone.
 */
export async function measureLatency(url: string, owners: Owners, server: Server, middle: string): Promise<Latency[]> {
  const database = openDatabase(url, { connections: 1 });
  const readPage = preparePages(database);
  const explainer = openExplainer(url, 'force_generic_plan');
  const cases = [];
  for (const { name, kind, request } of shapesFor(owners)) {
    for (const after of ['', middle]) {
      const page = { filter: filterOf(request), visibleProfiles: null, after, size: request.size ?? 25 };
      const { rows, buffers } = await explainer.explain(page);
      // A cursor into the middle is had by walking there, which would take hours: only the database is timed there.
      const path = after === '' ? `${server.url}${PATH}?${searchOf(request)}` : undefined;
      const shape = after === '' ? name : `${name}, deep`;
      cases.push({ shape, kind, page, path, rows, buffers, database: [] as number[], request: [] as number[] });
    }
  }
  for (let round = -5; round < ROUNDS; round++) {
    for (const each of cases) {
      const query = await timed(() => readPage(each.page));
      const { path } = each;
      const request = path === undefined ? undefined : await timed(async () => (await fetch(path)).arrayBuffer());
      if (round < 0) continue;
      each.database.push(query);
      if (request !== undefined) each.request.push(request);
    }
  }
  await explainer.close();
  await closeDatabase(database);
  return cases.map(({ shape, kind, rows, buffers, ...times }) => ({
    shape,
    kind,
    rows,
    buffers,
    database: quantiles(times.database),
    request: quantiles(times.request),
  }));
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
  return { median: at(0.5), p99: at(0.99) };
}
