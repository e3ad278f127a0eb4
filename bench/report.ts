/** The tables of docs/performance.md and of .cache/bench/shapes.md, from what was measured on each version. */
import { execFileSync } from 'node:child_process';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { cpus, totalmem } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Operation } from '../test/support/operating.js';
import type { Compression } from './compression.js';
import type { Importing } from './importing.js';
import type { Latencies, RandomPages } from './latency.js';
import { OURS, type Throughput } from './throughput.js';
import type { Changes } from './updates.js';

/** What was measured on one version of PostgreSQL. */
export interface Results {
  version: string;
  machine: string;
  latencies: Latencies[];
  importing: Record<string, Importing>;
  /** What operators do, at the largest size that is imported. */
  operations?: { numbers: number; all: Operation[] } | undefined;
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
const DOCUMENTS = ['docs/performance.md', 'docs/scaling.md'];
/** All shapes; the documents have the slowest. */
const SHAPES = join(RESULTS, 'shapes.md');
const SLOWEST = 10;

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
    slowest: shapeTable(slowest(all)),
    throughput: throughputTable(all),
    compression: compressionTable(all),
    import: importTable(all),
    operations: operationTable(all),
    sizes: sizeTable(all),
  };
  for (const document of DOCUMENTS) {
    let page = await readFile(document, 'utf8');
    for (const [name, table] of Object.entries(sections)) {
      const section = new RegExp(`(<!-- bench:${name} -->\n)[^]*?(<!-- /bench -->)`);
      if (table !== '') page = page.replace(section, (_, start, end) => `${start}\n${table}\n\n${end}`);
    }
    await writeFile(document, page);
  }
  await writeFile(SHAPES, `${slowestFilterTable(all)}\n\n${shapeTable(shapes(all))}\n`);
  console.log(sections.targets);
}

export function machine(): string {
  const date = new Date().toISOString().slice(0, 10);
  const commit = execFileSync('git', ['describe', '--always', '--dirty'], { encoding: 'utf8' }).trim();
  return `${commit}, ${date}, ${cpus().length} × ${cpus()[0]?.model}, ${Math.round(totalmem() / 2 ** 30)} GB, Node ${process.version}`;
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
  const largest = Math.max(...all.map(({ loaded }) => loaded));
  const imported = `import of ${named(largest)}`;
  const importingOf = ({ importing }: Results) => importing[largest];
  return [
    ...[
      [1, 1.42],
      [8, 1.76],
      [64, 2.17],
    ].map(([connections = 0, bound = 0]) => ({
      name: `first pages a second against the hand-written server, connections: ${connections}`,
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
    {
      name: `${imported}, against bare COPY`,
      bound: 6,
      format: times,
      measured: (results) => {
        const { seconds = Number.NaN, copySeconds = Number.NaN } = importingOf(results) ?? {};
        return seconds / copySeconds;
      },
    },
    {
      name: `${imported}, memory`,
      bound: 200,
      format: (value) => `${Math.round(value)} MB`,
      measured: (results) => importingOf(results)?.memory,
    },
    {
      name: `${imported}, pages meanwhile, p99`,
      bound: 25,
      format: ms,
      measured: (results) => importingOf(results)?.pages.p99,
    },
    {
      name: 'a single changed entry, against a bare table',
      bound: 0.3,
      isLeast: true,
      format: times,
      measured: ({ changes }) => changes && changes.withTriggers / changes.bare,
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

/** What pages may take at most: medians in milliseconds, or as many look-ups of one phone number; and the worst. */
const PAGE_TARGETS: { kind: RandomPages['kind']; name: string; pageSize: number; most: PageTarget }[] = [
  { kind: 'one attribute', name: 'at most one', pageSize: 25, most: { lookUps: 6, worst: 12 } },
  { kind: 'one attribute', name: 'at most one', pageSize: 100, most: { worst: 25 } },
  { kind: 'several attributes', name: 'two or three', pageSize: 25, most: { median: 5, worst: 30 } },
  { kind: 'several attributes', name: 'two or three', pageSize: 100, most: { median: 5, worst: 30 } },
];
interface PageTarget {
  lookUps?: number;
  median?: number;
  worst: number;
}

function pageTable(all: Results[]): string {
  const sizes = [...new Set(eachSize(all).map(({ numbers }) => numbers))].sort((one, other) => one - other);
  const at = (results: Results, size: number) => results.latencies.find(({ numbers }) => numbers === size);
  const rows = PAGE_TARGETS.flatMap(({ kind, name, pageSize, most }) =>
    sizes.map((size) => [
      ...[name, String(pageSize), named(size)],
      `${most.lookUps ? `${most.lookUps} ×` : (most.median ?? '–')} / – / ${most.worst}`,
      ...all.map((results) => {
        const pages = at(results, size)?.random.find((each) => each.kind === kind && each.pageSize === pageSize);
        return pages ? timesOf(pages, at(results, size)?.lookUp ?? Number.NaN, most) : '–';
      }),
    ]),
  );
  const lookUps = sizes.map((size) => [
    ...['one phone number', '1', named(size), '–'],
    ...all.map((results) => at(results, size)?.lookUp.toFixed(1) ?? '–'),
  ]);
  const head = all.map(({ version }) => `${version}: median / p95 / worst`);
  return table(['attributes', 'page', 'numbers', 'at most', ...head], [...lookUps, ...rows]);
}

function timesOf({ times: { median, p95, worst }, failed }: RandomPages, lookUp: number, most: PageTarget): string {
  const isMissed = median > (most.lookUps ? most.lookUps * lookUp : (most.median ?? median));
  const marked = (value: number, isWrong: boolean) => (isWrong ? `**${value.toFixed(1)}**` : value.toFixed(1));
  const cell = `${marked(median, isMissed)} / ${p95.toFixed(1)} / ${marked(worst, worst > most.worst)}`;
  return failed > 0 ? `${cell}, **${failed} failed**` : cell;
}

function slowestFilterTable(all: Results[]): string {
  const rows = eachSize(all).flatMap(({ version, numbers, random }) =>
    random.map(({ kind, pageSize, times, slowest }) => [
      ...[kind, String(pageSize), named(numbers), version, ms(times.worst), summaryOf(slowest)],
    ]),
  );
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

/** In brackets, relative to the contender `base`. */
export function throughputTable(all: Pick<Results, 'version' | 'throughput'>[], base = BY_HAND): string {
  const measured = all.flatMap(({ throughput }) => throughput);
  const contenders = [...new Map(measured.map((each) => [`${each.load} ${each.name}`, each])).values()];
  const counts = [...new Set(measured.map(({ connections }) => connections))];
  const rows = contenders
    .toSorted((one, other) => one.load.localeCompare(other.load))
    .map(({ name, load }) => [
      ...[load, name],
      ...all.flatMap(({ throughput }) =>
        counts.map((count) => {
          const of = (name: string) =>
            throughput.find((each) => each.name === name && each.load === load && each.connections === count)
              ?.perSecond ?? Number.NaN;
          return `${named(Math.round(of(name)))} (${(of(name) / of(base)).toFixed(2)})`;
        }),
      ),
    ]);
  return table(
    ['asked', 'server', ...all.flatMap(({ version }) => counts.map((count) => `${version}, ${count}`))],
    rows,
  );
}

function compressionTable(all: Results[]): string {
  const rows = (all.at(-1)?.compression ?? []).map(({ pageSize, encoding, bytes }) => [
    ...[String(pageSize), encoding, `${(bytes / 1000).toFixed(1)} kB`],
    ...all.map(({ compression = [] }) => {
      const of = (encoding: string) =>
        compression.find((each) => each.pageSize === pageSize && each.encoding === encoding)?.perSecond ?? Number.NaN;
      return `${named(Math.round(of(encoding)))} (${(of(encoding) / of('identity')).toFixed(2)})`;
    }),
  ]);
  return table(['page', 'encoding', 'body', ...all.map(({ version }) => version)], rows);
}

function importTable(all: Results[]): string {
  const seconds = (value: number) => `${value.toFixed(1)} s`;
  const waits = ({ median, p99, worst }: Importing['pages']) =>
    [median, p99, worst].map((each) => each.toFixed(1)).join(' / ');
  const rows = all.flatMap(({ version, importing, loaded }) => {
    const measured = importing[loaded];
    if (!measured) return [];
    const { numbers, seconds: whole, copySeconds, memory, pages, change } = measured;
    return [
      [
        ...[named(numbers), version, seconds(whole), times(whole / copySeconds), `${Math.round(memory)} MB`],
        waits(pages),
        `${seconds(change.seconds)} for ${named(change.numbers)}`,
        waits(change.pages),
      ],
    ];
  });
  const pages = 'pages meanwhile: median / p99 / worst, ms';
  const head = ['numbers', 'PostgreSQL', 'import', 'of bare COPY', 'memory', pages, 'changes on top', pages];
  return table(head, rows);
}

/** Of the largest size that was imported, on the newest version: they differ by less than a hundredth. */
function sizeTable(all: Results[]): string {
  const rows = all
    .slice(-1)
    .flatMap(({ version, loaded, sizes = {} }) =>
      (sizes[loaded] ?? []).map(({ table, rows, indexes }) => [
        ...[`\`${table}\``, named(loaded), version],
        ...[rows, indexes].flatMap((bytes) => [
          `${named(Math.round(bytes / 1e6))} MB`,
          `${named(Math.round(bytes / loaded))} B`,
        ]),
      ]),
    );
  rows.sort(([one = ''], [other = '']) => one.localeCompare(other));
  return table(['table', 'numbers', 'PostgreSQL', 'rows', 'for a number', 'indexes', 'for a number'], rows);
}

/** What each command took. */
function operationTable(all: Results[]): string {
  const measured = all.flatMap(({ version, operations }) => (operations ? [{ version, ...operations }] : []));
  const rows = (measured[0]?.all ?? []).map(({ what }, index) => [
    what,
    ...measured.map(({ all }) => {
      const { seconds = 0, memory = 0, write = 0, page = 0 } = all[index] ?? {};
      return `${Math.round(seconds)} s, ${Math.round(memory)} MB, ${(write / 1000).toFixed(1)} s, ${Math.round(page)} ms`;
    }),
  ]);
  return table(['command', ...measured.map(({ version, numbers }) => `${version}, ${named(numbers)}`)], rows);
}

/** Named shapes at each size and on each version. */
const shapes = (all: Results[]) =>
  eachSize(all).flatMap(({ version, numbers, shapes }) => shapes.map((shape) => ({ version, numbers, ...shape })));
/** The slowest at the largest size on the newest version. */
const slowest = (all: Results[]) =>
  shapes(all.slice(-1).map((results) => ({ ...results, latencies: results.latencies.slice(-1) })))
    .sort((one, other) => other.times.median - one.times.median)
    .slice(0, SLOWEST);

function shapeTable(measured: ReturnType<typeof shapes>): string {
  const rows = measured.map(({ shape, numbers, version, times, buffers, items }) => [
    ...[shape, named(numbers), version, `${times.median.toFixed(1)} / ${times.p95.toFixed(1)} ms`],
    ...[String(buffers), String(items)],
  ]);
  return table(['shape', 'numbers', 'PostgreSQL', 'median / p95', 'buffers', 'items'], rows);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await writeReport();
