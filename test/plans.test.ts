/** No page reads more than a stated number of buffers and rows, whatever the planner believes. */
import postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openExplainer, type PlanNode } from '../bench/explain.js';
import { type Shape, shapesFor } from '../bench/shapes.js';
import { filterOf } from '../src/filter.js';
import { createDatabase } from './database.js';
import { fillSkewed } from './skewedNumbers.js';

/** The most that a page of 25 may read; one of 100 is allowed four times as much. */
const MOST: Record<Shape['kind'], { buffers: number; rows: number }> = {
  one: { buffers: 1000, rows: 2500 },
  several: { buffers: 6000, rows: 6000 },
  bounded: { buffers: 12_000, rows: 20_000 },
};
const DEEP = '+12000350000';

let url: string;
let drop: () => Promise<void>;
let sql: postgres.Sql;
let shapes: Shape[];

beforeAll(async () => {
  ({ url, drop } = await createDatabase());
  sql = postgres(url, { max: 1, onnotice: () => {} });
  shapes = shapesFor(await fillSkewed(sql, 100_000));
});

afterAll(async () => {
  await sql.end();
  await drop();
});

/** What the planner may believe of the tables, in the order in which it can be brought about. */
const STATISTICS = {
  'statistics of a hundredth of the rows': async () => {},
  'fresh statistics': () => sql`ANALYZE`,
  'no statistics': async () => {
    await sql`
      SELECT pg_clear_attribute_stats(schemaname, tablename, attname, inherited) FROM pg_stats
      WHERE schemaname = 'public'`;
    await sql`
      SELECT pg_clear_relation_stats('public', relname) FROM pg_class
      WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')`;
  },
};

describe.each(Object.entries(STATISTICS))('with %s', (_name, bringAbout) => {
  beforeAll(async () => {
    await bringAbout();
  });

  test.each(['force_generic_plan', 'force_custom_plan'] as const)('no page reads much under %s', async (mode) => {
    const { explain, close } = openExplainer(url, mode);
    const excesses: string[] = [];
    for (const { name, kind, request } of shapes) {
      for (const after of ['', DEEP]) {
        const size = request.size ?? 25;
        const page = { filter: filterOf(request), visibleProfiles: null, after, size };
        const { buffers, rows, plan } = await explain(page);
        const most = { buffers: (MOST[kind].buffers * size) / 25, rows: (MOST[kind].rows * size) / 25 };
        const where = `${name}, ${after ? 'deep' : 'first'} page`;
        if (buffers > most.buffers) excesses.push(`${where}: ${buffers} buffers`);
        if (rows > most.rows) excesses.push(`${where}: ${rows} rows`);
        for (const node of scansOfAll(plan)) excesses.push(`${where}: ${node['Node Type']}`);
      }
    }
    await close();
    expect(excesses).toEqual([]);
  });
});

/** The scans that read a whole table or a whole range; that of the few facets is meant. */
function scansOfAll(node: PlanNode): PlanNode[] {
  const below = (node.Plans ?? []).flatMap(scansOfAll);
  const isOfAll = /^(Seq|Bitmap Heap) Scan$/.test(node['Node Type']) && node['Relation Name'] !== 'facets';
  return isOfAll && node['Actual Loops'] > 0 ? [node, ...below] : below;
}
