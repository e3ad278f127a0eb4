/** How much PostgreSQL reads for a page, by EXPLAIN of the statements that the service prepares. */
import postgres from 'postgres';
import { planningOptions } from '../../src/config/sessionSettings.js';
import { type PageRequest, preparePages } from '../../src/page/page.js';

interface Reads {
  /** Pages of 8 kB, read from memory or disk. */
  buffers: number;
  /** In the order that the service sends them. */
  statements: { query: string; plan: PlanNode }[];
}

export interface PlanNode {
  'Node Type': string;
  'Index Name'?: string;
  'Relation Name'?: string;
  'Actual Loops': number;
  Plans?: PlanNode[];
}

/** Opens a connection for `explain`; `planCacheMode` is PostgreSQL's setting plan_cache_mode. */
export function openExplainer(url: string, planCacheMode: 'force_generic_plan' | 'force_custom_plan') {
  const connection = { ...planningOptions, plan_cache_mode: planCacheMode };
  const client = postgres(url, { max: 1, connection });
  const { readPage, sent } = recordPages(client);
  const names = new Map<string, string>();

  async function explain(request: PageRequest): Promise<Reads> {
    await readPage(request);
    const reads: Reads = { buffers: 0, statements: [] };
    for (const { query, values } of sent.splice(0)) {
      const name = names.get(query) ?? `explained_${names.size}`;
      if (!names.has(query)) await client.unsafe(`PREPARE ${name} AS ${query}`);
      names.set(query, name);
      const [row] = await client.unsafe(
        `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE ${name}(${values.map(literal).join(', ')})`,
      );
      const [{ Plan: plan }] = row?.['QUERY PLAN'] ?? [{}];
      reads.buffers += plan['Shared Hit Blocks'] + plan['Shared Read Blocks'];
      reads.statements.push({ query, plan });
    }
    return reads;
  }

  return { explain, close: () => client.end() };
}

/** Returns a function that reads pages through `client`, and the list `sent`, to which it adds each statement. */
export function recordPages(client: postgres.Sql) {
  const sent: { query: string; values: unknown[] }[] = [];
  const unsafe: typeof client.unsafe = (query, values = [], options) => {
    sent.push({ query, values });
    return client.unsafe(query, values, options);
  };
  const readPage = preparePages();
  return { readPage: (request: PageRequest) => readPage({ unsafe }, request), sent };
}

function literal(value: unknown): string {
  if (value === null || value === undefined) return 'NULL';
  const text = Array.isArray(value)
    ? `{${value.map((element) => `"${String(element).replaceAll(/["\\]/g, '\\$&')}"`).join(',')}}`
    : String(value);
  return `'${text.replaceAll("'", "''")}'`;
}
