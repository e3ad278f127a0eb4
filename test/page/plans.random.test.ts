/** No page reads more than a fixed number of buffers, with any filter and with any statistics of the planner. */
import type postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { filterOf } from '../../src/page/filter.js';
import { connectTo } from '../support/connection.js';
import { createDatabase } from '../support/database.js';
import { openExplainer, type PlanNode } from '../support/explain.js';
import { shapesFor } from '../support/namedFilters.js';
import { randomFilters } from '../support/randomFilters.js';
import { freshSeed } from '../support/seed.js';
import { fakeOneRowStatistics, tables } from '../support/statistics.js';
import { addCarriers, fillSkewed } from './skewedNumbers.js';

/**
 * The most buffers that a page of 25 may read; a page of 100 may read twice as many. Of 6,000 random filters, three
 * read more than 4,000, and one of them 10,512: with dozens of values for two attributes, all candidates of a rare
 * status are tested.
 */
const MAX_BUFFERS = { named: 4_000, random: 12_000 };
const NUMBERS = 20_000 * inject('tries');
/** The number of random filters of each kind. */
const FILTERS = 10 * inject('tries');
const seed = freshSeed();
const MODES = ['force_generic_plan', 'force_custom_plan'] as const;
const DEEP = `+1${2_000_000_000 + 3.5 * NUMBERS}`;

let url: string;
let drop: () => Promise<void>;
let sql: postgres.Sql;
let requests: { kind: keyof typeof MAX_BUFFERS; request: Parameters<typeof filterOf>[0] }[];

beforeAll(async () => {
  ({ url, drop } = await createDatabase());
  sql = connectTo(url);
  const named = shapesFor(await fillSkewed(sql, NUMBERS)).map(({ request }) => ({ kind: 'named' as const, request }));
  const random = (['one attribute', 'several attributes'] as const)
    .flatMap((attributes) => randomFilters(attributes, FILTERS, seed))
    .map((request) => ({ kind: 'random' as const, request }));
  requests = [...named, ...random];
}, 600_000);

afterAll(async () => {
  await sql.end();
  await drop();
});

/** Statistics of the tables that the planner may have, and how to bring each about after the previous one. */
const STATISTICS = {
  'statistics of a hundredth of the rows': async () => {},
  'fresh statistics': () => sql`ANALYZE`,
  'no statistics': async () => {
    await sql`DELETE FROM pg_statistic WHERE starelid IN ${tables(sql)}`;
    await sql`UPDATE pg_class SET reltuples = -1, relpages = 0, relallvisible = 0 WHERE oid IN ${tables(sql)}`;
  },
  'statistics of one row, as an ANALYZE leaves them during the transaction that loads the first numbers': () =>
    fakeOneRowStatistics(sql, 1 / 5),
  'statistics of one row in tables of full size, as a VACUUM leaves them at the end of that transaction': () =>
    fakeOneRowStatistics(sql, 1),
  'no statistics, and 40,000 more carriers': () => addCarriers(sql, 40_000),
};

describe.each(Object.entries(STATISTICS))('with %s', (statistics, bringAbout) => {
  beforeAll(async () => {
    await bringAbout();
  });

  // The service uses one plan for all values; other callers of the statements may get a plan for the values of each
  // call.
  const modes = statistics === 'fresh statistics' ? MODES : MODES.slice(0, 1);
  test.each(modes)(
    'no page reads more buffers than allowed under %s',
    async (mode) => {
      const { explain, close } = openExplainer(url, mode);
      const excesses: string[] = [];
      for (const { kind, request } of requests) {
        for (const after of ['', DEEP]) {
          const size = request.size ?? 25;
          const { buffers, statements } = await explain({
            filter: filterOf(request),
            visibleProfiles: null,
            after,
            size,
          });
          const page = `${after ? 'deep' : 'first'} page of ${JSON.stringify(request)}`;
          const maxBuffers = MAX_BUFFERS[kind] * (size > 25 ? 2 : 1);
          if (buffers > maxBuffers) excesses.push(`${page}: ${buffers} buffers`);
          for (const node of statements.flatMap(({ plan }) => wholeScans(plan))) {
            excesses.push(`${page}: ${node['Node Type']}`);
          }
        }
      }
      await close();
      expect(excesses).toEqual([]);
    },
    600_000,
  );
});

/** Returns the executed scans of a plan that read a whole table or a whole range. */
function wholeScans(node: PlanNode): PlanNode[] {
  const nested = (node.Plans ?? []).flatMap(wholeScans);
  return /^(Seq|Bitmap Heap) Scan$/.test(node['Node Type']) && node['Actual Loops'] > 0 ? [node, ...nested] : nested;
}
