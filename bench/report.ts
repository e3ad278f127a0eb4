/** The tables of docs/performance.md and docs/performance-shapes.md, from what was measured on each version. */
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { cpus, totalmem } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Changes } from './changes.js';
import type { Compression } from './compression.js';
import type { Importing } from './importing.js';
import type { Latencies, RandomPages } from './latency.js';
import { OURS, type Throughput } from './throughput.js';

/** What was measured on one version of PostgreSQL. */
export interface Results {
  version: string;
  machine: string;
  latencies: Latencies[];
  importing: Record<string, Importing>;
  /** At `loaded` numbers, like the compressed pages and the changes. */
  throughput: Throughput[];
  compression?: Compression[];
  changes?: Changes | undefined;
  loaded: number;
  sizes?: Record<string, TableSize[]>;
}

/** Bytes of a table and of its indexes. */
export interface TableSize {
  table: string;
  rows: number;
  indexes: number;
}

/** Where the results are kept, a file for each version of PostgreSQL. */
export const RESULTS = join('.cache', 'bench');
const DOCUMENTS = ['docs/performance.md', 'docs/performance-shapes.md', 'docs/scaling.md'];

/** Writes the tables between the documents' markers; a table without results is left as it is. */
export async function writeReport(): Promise<void> {
  const files = (await readdir(RESULTS)).filter((name) => name.endsWith('.json'));
  const all: Results[] = await Promise.all(
    files.map(async (name) => JSON.parse(await readFile(join(RESULTS, name), 'utf8'))),
  );
  all.sort((one, other) => Number.parseFloat(one.version) - Number.parseFloat(other.version));
  const sections: Record<string, string> = {
    machine: all.map(({ version, machine }) => `- PostgreSQL ${version}: ${machine}`).join('\n'),
    targets: targetTable(all),
    pages: pageTable(all),
    slowest: slowestTable(all),
    throughput: throughputTable(all),
    compression: compressionTable(all),
    import: importTable(all),
    changes: changeTable(all),
    sizes: sizeTable(all),
    shapes: shapeTable(all),
  };
  for (const document of DOCUMENTS) {
    let page = await readFile(document, 'utf8');
    for (const [name, table] of Object.entries(sections)) {
      const section = new RegExp(`(<!-- bench:${name} -->\n)[^]*?(<!-- /bench -->)`);
      if (table !== '') page = page.replace(section, (_, start, end) => `${start}\n${table}\n\n${end}`);
    }
    await writeFile(document, page);
  }
  console.log(sections.targets);
}

export function machine(): string {
  const date = new Date().toISOString().slice(0, 10);
  return `${date}, ${cpus().length} × ${cpus()[0]?.model}, ${Math.round(totalmem() / 2 ** 30)} GB, Node ${process.version}`;
}

const ms = (value: number) => `${value.toFixed(1)} ms`;
const times = (value: number) => `${value.toFixed(2)} ×`;
const named = (size: number) => size.toLocaleString('en');

/** '' without rows. */
function table(head: string[], rows: string[][]): string {
  const line = (cells: string[]) => `| ${cells.join(' | ')} |`;
  if (rows.length === 0) return '';
  return [line(head), line(head.map((_, index) => (index === 0 ? '---' : '---:'))), ...rows.map(line)].join('\n');
}

const BY_HAND = 'Fastify + postgres.js, obvious query';

/** A target: what it is about, and its value in a set of results; met if the value is within the bound. */
interface Target {
  name: string;
  bound: number;
  isLeast?: boolean;
  format: (value: number) => string;
  measured: (results: Results) => number | undefined;
}

function targetsOf(all: Results[]): Target[] {
  const sizes = [...new Set(all.flatMap(({ latencies }) => latencies.map(({ numbers }) => numbers)))].sort(
    (a, b) => a - b,
  );
  const imports = [...new Set(all.flatMap(({ importing }) => Object.keys(importing)))];
  return [
    ...sizes.flatMap((size) => targetsOfPages(size)),
    ...[
      [1, 1.42],
      [8, 1.76],
      [64, 2.17],
    ].map(([connections = 0, bound = 0]) => ({
      name: `requests/s against the hand-written server, first page, ${connections} connections`,
      bound,
      isLeast: true,
      format: times,
      measured: ({ throughput }: Results) => {
        const of = (name: string) =>
          throughput.find(
            (each) => each.name === name && each.load === 'first page' && each.connections === connections,
          )?.perSecond ?? Number.NaN;
        return of(OURS.name) / of(BY_HAND);
      },
    })),
    ...imports.flatMap((size): Target[] => {
      const of = (results: Results) => results.importing[size];
      const name = `import of ${named(Number(size))}`;
      return [
        {
          name: `${name}, against bare COPY`,
          bound: 6,
          format: times,
          measured: (results) => (of(results)?.seconds ?? Number.NaN) / (of(results)?.copySeconds ?? Number.NaN),
        },
        {
          name: `${name}, memory`,
          bound: 200,
          format: (value) => `${Math.round(value)} MB`,
          measured: (results) => of(results)?.memory,
        },
        { name: `${name}, pages meanwhile, p99`, bound: 25, format: ms, measured: (results) => of(results)?.pages.p99 },
      ];
    }),
    {
      name: 'a single changed entry, against a bare table',
      bound: 0.3,
      isLeast: true,
      format: times,
      measured: ({ changes }) => changes && changes.withTriggers / changes.bare,
    },
  ];
}

function targetsOfPages(size: number): Target[] {
  const of = (results: Results) => results.latencies.find(({ numbers }) => numbers === size);
  const pages = (results: Results, kind: RandomPages['kind'], pageSize: number) =>
    of(results)?.random.find((each) => each.kind === kind && each.pageSize === pageSize);
  const name = `${named(size)} numbers`;
  return [
    {
      name: `${name}: at most one attribute, page of 25, median in look-ups`,
      bound: 6,
      format: times,
      measured: (results) =>
        (pages(results, 'one attribute', 25)?.times.median ?? Number.NaN) / (of(results)?.lookUp ?? Number.NaN),
    },
    {
      name: `${name}: at most one attribute, page of 25, worst`,
      bound: 12,
      format: ms,
      measured: (results) => pages(results, 'one attribute', 25)?.times.worst,
    },
    {
      name: `${name}: at most one attribute, page of 100, worst`,
      bound: 25,
      format: ms,
      measured: (results) => pages(results, 'one attribute', 100)?.times.worst,
    },
    ...[25, 100].flatMap((pageSize): Target[] => [
      {
        name: `${name}: two or three attributes, page of ${pageSize}, median`,
        bound: 5,
        format: ms,
        measured: (results) => pages(results, 'several attributes', pageSize)?.times.median,
      },
      {
        name: `${name}: two or three attributes, page of ${pageSize}, worst`,
        bound: 30,
        format: ms,
        measured: (results) => pages(results, 'several attributes', pageSize)?.times.worst,
      },
    ]),
    {
      name: `${name}: answers other than 200`,
      bound: 0,
      format: String,
      measured: (results) => of(results)?.random.reduce((sum, { failed }) => sum + failed, 0),
    },
  ];
}

function targetTable(all: Results[]): string {
  const rows = targetsOf(all).map(({ name, bound, isLeast, format, measured }) => [
    name,
    `${isLeast ? 'at least' : 'at most'} ${format(bound)}`,
    ...all.map((results) => {
      const value = measured(results);
      if (value === undefined || Number.isNaN(value)) return '–';
      return (isLeast ? value >= bound : value <= bound) ? format(value) : `**missed: ${format(value)}**`;
    }),
  ]);
  return table(['what', 'target', ...all.map(({ version }) => version)], rows);
}

const eachSize = (all: Results[]) =>
  all.flatMap(({ version, latencies }) => latencies.map((each) => ({ version, ...each })));

/** Random pages of all versions and sizes, each with the cells that name it in a table. */
const eachRandom = (all: Results[]) =>
  eachSize(all).flatMap(({ version, numbers, lookUp, random }) =>
    random.map(({ kind, pageSize, ...measured }) => ({
      ...measured,
      lookUp,
      names: [kind === 'one attribute' ? 'at most one' : 'two or three', String(pageSize), named(numbers), version],
    })),
  );

function pageTable(all: Results[]): string {
  const rows = eachRandom(all).map(({ names, lookUp, times: { median, p95, worst } }) => [
    ...names,
    ...[median, p95, worst].map((value) => `${ms(value)} (${(value / lookUp).toFixed(1)})`),
  ]);
  rows.sort(([kind = '', size = ''], [otherKind = '', otherSize = '']) =>
    kind === otherKind ? Number(size) - Number(otherSize) : kind < otherKind ? -1 : 1,
  );
  const lookUps = eachSize(all).map(({ version, numbers, lookUp }) => [
    'one phone number',
    '1',
    named(numbers),
    version,
    `${ms(lookUp)} (1.0)`,
    '',
    '',
  ]);
  return table(['attributes', 'page', 'numbers', 'PostgreSQL', 'median', 'p95', 'worst'], [...lookUps, ...rows]);
}

function slowestTable(all: Results[]): string {
  const rows = eachRandom(all).map(({ names, times, slowest }) => [...names, ms(times.worst), summaryOf(slowest)]);
  return table(['attributes', 'page', 'numbers', 'PostgreSQL', 'worst', 'asked'], rows);
}

/** A query string for a reader: a parameter with several values is shown by their number. */
function summaryOf(search: string): string {
  const asked = new URLSearchParams(search);
  asked.delete('size');
  return [...new Set(asked.keys())]
    .map((name) => {
      const values = asked.getAll(name);
      if (name === 'nextCursor') return 'deep';
      return values.length === 1 ? `${name} ${values[0]}` : `${values.length} × ${name}`;
    })
    .join(', ');
}

function throughputTable(all: Results[]): string {
  const rows = all.flatMap(({ version, throughput }) => {
    const of = (name: string, load: string, connections: number) =>
      throughput.find((each) => each.name === name && each.load === load && each.connections === connections)
        ?.perSecond ?? Number.NaN;
    const contenders = [...new Map(throughput.map((each) => [`${each.load} ${each.name}`, each])).values()];
    const counts = [...new Set(throughput.map(({ connections }) => connections))];
    return contenders
      .toSorted((one, other) => one.load.localeCompare(other.load))
      .map(({ name, load }) => [
        load,
        name,
        version,
        ...counts.map((count) => {
          const value = of(name, load, count);
          return `${named(Math.round(value))} (${(value / of(BY_HAND, load, count)).toFixed(2)})`;
        }),
      ]);
  });
  return table(['asked', 'server', 'PostgreSQL', '1 connection', '8 connections', '64 connections'], rows);
}

function compressionTable(all: Results[]): string {
  const rows = all.flatMap(({ version, compression = [] }) =>
    compression.map(({ pageSize, encoding, bytes, perSecond }) => {
      const plain = compression.find((each) => each.pageSize === pageSize && each.encoding === 'identity');
      return [
        String(pageSize),
        encoding,
        version,
        `${(bytes / 1000).toFixed(1)} kB`,
        `${named(Math.round(perSecond))} (${(perSecond / (plain?.perSecond ?? Number.NaN)).toFixed(2)})`,
      ];
    }),
  );
  return table(['page', 'encoding', 'PostgreSQL', 'body', 'requests/s'], rows);
}

function importTable(all: Results[]): string {
  const seconds = (value: number) => `${value.toFixed(1)} s`;
  const rows = all.flatMap(({ version, importing }) =>
    Object.values(importing).map(({ numbers, seconds: whole, copySeconds, memory, pages, change }) => [
      named(numbers),
      version,
      seconds(whole),
      times(whole / copySeconds),
      `${Math.round(memory)} MB`,
      `${ms(pages.median)} / ${ms(pages.p99)} / ${ms(pages.worst)}`,
      `${seconds(change.seconds)} for ${named(change.numbers)}`,
      `${ms(change.pages.median)} / ${ms(change.pages.p99)} / ${ms(change.pages.worst)}`,
    ]),
  );
  const pages = 'pages meanwhile: median / p99 / worst';
  const head = ['numbers', 'PostgreSQL', 'import', 'of bare COPY', 'memory', pages, 'changes on top', pages];
  return table(head, rows);
}

function changeTable(all: Results[]): string {
  const rows = all.flatMap(({ version, changes, loaded }) =>
    changes
      ? [
          [
            version,
            named(loaded),
            named(Math.round(changes.withTriggers)),
            named(Math.round(changes.bare)),
            times(changes.withTriggers / changes.bare),
          ],
        ]
      : [],
  );
  return table(['PostgreSQL', 'numbers', 'updates/s', 'of a bare table', 'ratio'], rows);
}

function sizeTable(all: Results[]): string {
  const rows = all.flatMap(({ version, sizes = {} }) =>
    Object.entries(sizes).flatMap(([numbers, tables]) =>
      tables.map(({ table, rows, indexes }) => [
        `\`${table}\``,
        named(Number(numbers)),
        version,
        ...[rows, indexes].flatMap((bytes) => [
          `${named(Math.round(bytes / 1e6))} MB`,
          `${named(Math.round(bytes / Number(numbers)))} B`,
        ]),
      ]),
    ),
  );
  rows.sort(([one = ''], [other = '']) => one.localeCompare(other));
  return table(['table', 'numbers', 'PostgreSQL', 'rows', 'for a number', 'indexes', 'for a number'], rows);
}

function shapeTable(all: Results[]): string {
  const sizes = eachSize(all);
  const cellsOf = ({ shapes }: Latencies, wanted: string) => {
    const found = shapes.find(({ shape }) => shape === wanted);
    return found
      ? [`${found.times.median.toFixed(1)} / ${found.times.p95.toFixed(1)}`, String(found.buffers), String(found.items)]
      : ['', '', ''];
  };
  const rows = (sizes[0]?.shapes ?? []).map(({ shape }) => [shape, ...sizes.flatMap((size) => cellsOf(size, shape))]);
  const head = sizes.flatMap(({ version, numbers }) => [`${version}, ${named(numbers)}`, 'buffers', 'items']);
  return table(['shape', ...head], rows);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await writeReport();
