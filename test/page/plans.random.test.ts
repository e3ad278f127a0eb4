/** No page reads more than a stated number of buffers, whatever is asked and whatever the planner believes. */
import type postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { filterOf } from '../../src/request/filter.js';
import { connectTo } from '../support/connection.js';
import { createDatabase } from '../support/database.js';
import { openExplainer, type PlanNode } from '../support/explain.js';
import { shapesFor } from '../support/namedFilters.js';
import { randomFilters } from '../support/randomFilters.js';
import { freshSeed } from '../support/seed.js';
import { believeInOneRow, tables } from '../support/statistics.js';
import { addCarriers, fillSkewed } from './skewedNumbers.js';

/**
 * The most that a page of 25 may read; one of 100 is allowed twice as much. Of 6,000 random filters, three read more than
 * 4,000: with dozens of values for two attributes, all candidates of a rare status are tested. The most was 10,512.
 */
const MAX_BUFFERS = { named: 4_000, random: 12_000 };
const NUMBERS = 20_000 * inject('tries');
/** How many random filters of each kind. */
const FILTERS = 10 * inject('tries');
const seed = freshSeed();
const MODES = ['force_generic_plan', 'force_custom_plan'] as const;
const DEEP = `+1${2_000_000_000 + 3.5 * NUMBERS}`;

let url: string;
let drop: () => Promise<void>;
let sql: postgres.Sql;
let asked: { kind: keyof typeof MAX_BUFFERS; request: Parameters<typeof filterOf>[0] }[];

beforeAll(async () => {
  ({ url, drop } = await createDatabase());
  sql = connectTo(url);
  const named = shapesFor(await fillSkewed(sql, NUMBERS)).map(({ request }) => ({ kind: 'named' as const, request }));
  const random = (['one attribute', 'several attributes'] as const)
    .flatMap((attributes) => randomFilters(attributes, FILTERS, seed))
    .map((request) => ({ kind: 'random' as const, request }));
  asked = [...named, ...random];
}, 600_000);

afterAll(async () => {
  await sql.end();
  await drop();
});

/** What the planner may believe of the tables, in the order in which it can be brought about. */
const STATISTICS = {
  'statistics of a hundredth of the rows': async () => {},
  'fresh statistics': () => sql`ANALYZE`,
  'no statistics': async () => {
    await sql`DELETE FROM pg_statistic WHERE starelid IN ${tables(sql)}`;
    await sql`UPDATE pg_class SET reltuples = -1, relpages = 0, relallvisible = 0 WHERE oid IN ${tables(sql)}`;
  },
  'statistics of a single row, as an ANALYZE leaves them after a fifth of a first import': () =>
    believeInOneRow(sql, 1 / 5),
  'the same, with the size of all, as a VACUUM leaves them at its end': () => believeInOneRow(sql, 1),
  'no statistics, and 40,000 carriers more': () => addCarriers(sql, 40_000),
};

describe.each(Object.entries(STATISTICS))('with %s', (statistics, bringAbout) => {
  beforeAll(async () => {
    await bringAbout();
  });

  // The service has one plan for all values; other callers of the statements get other plans.
  const modes = statistics === 'fresh statistics' ? MODES : MODES.slice(0, 1);
  test.each(modes)(
    'no page reads much under %s',
    async (mode) => {
      const { explain, close } = openExplainer(url, mode);
      const excesses: string[] = [];
      for (const { kind, request } of asked) {
        for (const after of ['', DEEP]) {
          const size = request.size ?? 25;
          const { buffers, statements } = await explain({
            filter: filterOf(request),
            visibleProfiles: null,
            after,
            size,
          });
          const where = `${after ? 'deep' : 'first'} page of ${JSON.stringify(request)}`;
          const share = buffers / (size > 25 ? 2 : 1);
          if (share > MAX_BUFFERS[kind]) excesses.push(`${where}: ${buffers} buffers`);
          for (const node of statements.flatMap(({ plan }) => scansOfAll(plan))) {
            excesses.push(`${where}: ${node['Node Type']}`);
          }
        }
      }
      await close();
      expect(excesses).toEqual([]);
    },
    600_000,
  );
});

/** The scans that read a whole table or a whole range. */
function scansOfAll(node: PlanNode): PlanNode[] {
  const below = (node.Plans ?? []).flatMap(scansOfAll);
  return /^(Seq|Bitmap Heap) Scan$/.test(node['Node Type']) && node['Actual Loops'] > 0 ? [node, ...below] : below;
}
