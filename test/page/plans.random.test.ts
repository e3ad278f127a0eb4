/** A page reads a bounded number of buffers, whatever its filter and the planner's statistics. */
import type postgres from 'postgres';
import { beforeAll, describe, expect, inject, test } from 'vitest';
import { filterOf } from '../../src/page/filter.js';
import { useDatabase } from '../support/database.js';
import { openExplainer, type PlanNode } from '../support/explain.js';
import { namedRequests } from '../support/namedFilters.js';
import { randomFilters } from '../support/randomFilters.js';
import { randomPart } from '../support/randomPart.js';
import { freshSeed } from '../support/seed.js';
import { fakeOneRowStatistics, tables } from '../support/statistics.js';
import { addCarriers, fillSkewed } from './skewedNumbers.js';

/**
 * The most buffers that a page of 25 may read; a page of 100 may read twice as many. Of 6,000 random filters, three
 * read more than 4,000, and one 10,512: with dozens of values for two attributes, a page tests all candidates of a rare
 * status.
 */
const MAX_BUFFERS = { named: 4_000, random: 12_000 };
/** In fewer, PostgreSQL rightly scans whole tables. */
const FEWEST_NUMBERS = 5_000;
const NUMBERS = Math.max(FEWEST_NUMBERS, 20_000 * inject('tries'));
/** The number of random filters of each kind. */
const FILTERS = Math.ceil(10 * inject('tries'));
const seed = freshSeed();
const MODES = ['force_generic_plan', 'force_custom_plan'] as const;
const DEEP = `+1${2_000_000_000 + 3.5 * NUMBERS}`;

const database = useDatabase();
let sql: postgres.Sql;
let requests: { kind: keyof typeof MAX_BUFFERS; request: Parameters<typeof filterOf>[0] }[];

beforeAll(async () => {
  sql = database.sql;
  await fillSkewed(sql, NUMBERS);
  const named = randomPart(Object.values(namedRequests)).map((request) => ({ kind: 'named' as const, request }));
  const random = (['one attribute', 'several attributes'] as const)
    .flatMap((attributes) => randomFilters(attributes, FILTERS, seed))
    .map((request) => ({ kind: 'random' as const, request }));
  requests = [...named, ...random];
}, 600_000);

/** Statistics that the planner may have, and how to get each from the previous one. */
const STATISTICS = {
  'statistics of a hundredth of the rows': async () => {},
  'fresh statistics': () => sql`ANALYZE`,
  'no statistics': async () => {
    await sql`DELETE FROM pg_statistic WHERE starelid IN ${tables(sql)}`;
    await sql`UPDATE pg_class SET reltuples = -1, relpages = 0, relallvisible = 0 WHERE oid IN ${tables(sql)}`;
  },
  'statistics of one row, left by ANALYZE during the first import': () => fakeOneRowStatistics(sql, 1 / 5),
  'statistics of one row in full tables, left by VACUUM after the first import': () => fakeOneRowStatistics(sql, 1),
  'no statistics, and 40,000 more carriers': () => addCarriers(sql, 40_000),
};

describe.each(Object.entries(STATISTICS))('with %s', (statistics, apply) => {
  beforeAll(async () => void (await apply()));

  // The service uses generic plans; other users of the statements may get a custom plan for each call.
  const modes = statistics === 'fresh statistics' ? MODES : MODES.slice(0, 1);
  test.each(modes)(
    'no page reads more than MAX_BUFFERS or scans a whole table, under %s',
    async (mode) => {
      const { explain, close } = openExplainer(database.url, mode);
      const excesses: string[] = [];
      for (const { kind, request } of requests) {
        for (const after of ['', DEEP]) {
          const size = request.size ?? 25;
          const filter = filterOf(request);
          const { buffers, statements } = await explain({ filter, visibleProfiles: null, after, size });
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
