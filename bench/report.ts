/** The tables of docs/performance.md and of .cache/bench/shapes.md, from what was measured on each version. */
import { execFileSync } from 'node:child_process';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { cpus, totalmem } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Operation } from './commands.js';
import type { Compression } from './compression.js';
import type { Latencies, RandomPages } from './latency.js';
import { OURS, type Throughput } from './throughput.js';
import type { Changes } from './updates.js';

/** What was measured on one version of PostgreSQL. */
export interface Results {
  version: string;
  machine: string;
  latencies: Latencies[];
  /** At each size that is imported; those beside writers at `loaded` only. */
  commands: Record<string, Operation[]>;
  /** Bare COPY of what the first import and a tenth changed have written. */
  copySeconds: Record<string, number>;
  replica?: { numbers: number; lagMs: number; seconds: number };
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
    commands: commandTable(all),
    writing: writingTable(all),
    writers: writersTable(all),
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
const mean = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
const worst = (values: number[]) => Math.max(...values);
const inSeconds = (value: number) => `${value.toFixed(1)} s`;
const megabytes = (value: number) => `${Math.round(value)} MB`;
const wholeMs = (value: number) => `${named(Math.round(value))} ms`;
const whole = (value: number) => named(Math.round(value));
const longestWrite = ({ writing }: Operation) => worst(writing?.longest ?? []);
const writesASecond = ({ writing, seconds }: Operation) => (writing?.transactions ?? 0) / seconds;
const besideWriters = (operations: Operation[]) => operations.filter(({ writing }) => writing);
const failedWrites = ({ writing }: Operation) =>
  Object.values(writing?.failed ?? {}).reduce((sum, count) => sum + count, 0);

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
  const firstOf = ({ commands }: Results) => commands[largest]?.[0];
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
      measured: (results) => (firstOf(results)?.seconds ?? Number.NaN) / (results.copySeconds[largest] ?? Number.NaN),
    },
    {
      name: `${imported}, memory`,
      bound: 200,
      format: (value) => `${Math.round(value)} MB`,
      measured: (results) => firstOf(results)?.memory,
    },
    {
      name: `${imported}, pages meanwhile, p99`,
      bound: 25,
      format: ms,
      measured: (results) => firstOf(results)?.pages.p99,
    },
    {
      name: 'the longest transaction of a writer beside any command',
      bound: 500,
      format: wholeMs,
      measured: ({ commands }) => commands[largest] && worst(besideWriters(commands[largest]).map(longestWrite)),
    },
    {
      name: 'failed transactions of writers beside commands',
      bound: 0,
      format: whole,
      measured: ({ commands }) => commands[largest] && worst(besideWriters(commands[largest]).map(failedWrites)),
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

/** What each command takes. */
function commandTable(all: Results[]): string {
  const measured = all.map(({ version, commands, loaded }) => ({
    version,
    loaded,
    operations: commands[loaded] ?? [],
  }));
  const rows = (measured[0]?.operations ?? []).map(({ what }, index) => [
    what,
    ...measured.map(({ operations: { [index]: operation } }) => {
      if (!operation) return '–';
      const { median, p99, worst, failed } = operation.pages;
      const pages = [median, p99, worst].map((each) => each.toFixed(0)).join(' / ');
      return `${inSeconds(operation.seconds)}, ${megabytes(operation.memory)}, ${pages}${failed > 0 ? `, **${failed} failed**` : ''}`;
    }),
  ]);
  if (all.some(({ replica }) => replica)) {
    const lag = ({ replica }: Results) =>
      replica ? `${wholeMs(replica.lagMs)} in ${inSeconds(replica.seconds)}, ${named(replica.numbers)}` : '–';
    rows.push(["a replica's longest lag during a first import", ...all.map(lag)]);
  }
  return table(['command', ...measured.map(({ version, loaded }) => `${version}, ${named(loaded)}`)], rows);
}

/** What writers beside the commands have seen of them. */
function writingTable(all: Results[]): string {
  const rows = all.flatMap(({ version, commands, loaded }) =>
    besideWriters(commands[loaded] ?? []).map((operation) => [
      ...[operation.what, version, whole(writesASecond(operation))],
      ...[operation.writing?.longest.map((each) => each.toFixed(0)).join(' / ') ?? '', whole(failedWrites(operation))],
    ]),
  );
  return table(['command', 'PostgreSQL', 'transactions a second', 'longest of each, ms', 'failed'], rows);
}

/** What writers do at most. */
function writersTable(all: Results[]): string {
  const counts = Object.keys(all.at(-1)?.changes?.writers ?? {});
  const rows = all.map(({ version, changes }) => [
    ...[version, ...counts.map((count) => whole(changes?.writers?.[Number(count)] ?? Number.NaN))],
  ]);
  return table(['PostgreSQL', ...counts.map((count) => `writers: ${count}`)], counts.length > 0 ? rows : []);
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

/** What one variant took, by what was measured: seconds, milliseconds or bytes. */
export interface Compared {
  variant: string;
  operations: Operation[];
  /** Bytes of the postings' indexes after the first import. */
  indexes: number;
  /** Changed entries a second, by the number of writers. */
  writers: Record<number, number>;
}

/**
 * The commands of several versions, means of all rounds or the worst; in brackets, relative to the first version. A command
 * that was not measured in all of them is left out.
 */
export function comparedTable(rounds: Compared[][]): string {
  const [first = []] = rounds;
  const row = (what: string, cell: (all: Compared[], before: Compared[]) => string) => {
    const variants = first.map((_, variant) => rounds.flatMap(({ [variant]: compared }) => compared ?? []));
    return [what, ...variants.map((all) => cell(all, variants[0] ?? []))];
  };
  const relative = (format: (value: number) => string, value: number, before: number) =>
    `${format(value)} (${(value / before).toFixed(2)})`;
  const count = Math.min(...rounds.flat().map(({ operations }) => operations.length));
  const rows = (first[0]?.operations ?? []).slice(0, count).flatMap(({ what, writing }, index) => {
    const at = (all: Compared[]) => all.flatMap(({ operations: { [index]: operation } }) => operation ?? []);
    const command = row(what, (all, before) => {
      const [seconds, cpu] = (['seconds', 'cpu'] as const).map((name) =>
        relative(inSeconds, mean(at(all).map((each) => each[name])), mean(at(before).map((each) => each[name]))),
      );
      const memory = megabytes(mean(at(all).map((each) => each.memory)));
      return `${seconds}, CPU ${cpu}, ${memory}, ${wholeMs(worst(at(all).map(({ pages }) => pages.worst)))}`;
    });
    const writers = row(`${what}: the writers`, (all) => {
      const failed = worst(at(all).map(failedWrites));
      return `${wholeMs(worst(at(all).map(longestWrite)))}, ${whole(mean(at(all).map(writesASecond)))} a second, ${failed} failed`;
    });
    return writing ? [command, writers] : [command];
  });
  for (const writers of Object.keys(first[0]?.writers ?? {}).map(Number)) {
    const rate = (all: Compared[]) => mean(all.map((each) => each.writers[writers] ?? Number.NaN));
    const cell = (all: Compared[], before: Compared[]) => relative(whole, rate(all), rate(before));
    rows.push(row(`changed entries a second, writers: ${writers}`, cell));
  }
  const size = (all: Compared[]) => mean(all.map(({ indexes }) => indexes / 1e6));
  rows.push(
    row("postings' indexes after the first import", (all, before) => relative(megabytes, size(all), size(before))),
  );
  return table(['what', ...first.map(({ variant }) => variant)], rows);
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
