/** Writes the results of `make bench` to docs/performance.md and docs/scaling.md. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { CommandRun } from './commands.js';
import { table, writeSections } from './document.js';
import type { Latencies, RandomPages } from './latency.js';
import { quantiles } from './medians.js';
import { RESULTS } from './program.js';
import { BY_HAND, CONNECTIONS, OURS, OURS_UNLIMITED, type Sample, type Throughput } from './throughput.js';
import type { Changes, RatesByWriters } from './updates.js';

/** The results on one version of PostgreSQL; RESULTS has a file for each version. */
export interface Results {
  version: string;
  machine: string;
  latencies: Latencies[];
  /** Imports of each size. */
  commands: Record<string, CommandRun[]>;
  besideWriters?: { numbers: number; runs: CommandRun[] };
  /** Seconds of a bare COPY at each imported size. */
  copySeconds: Record<string, number>;
  replica?: { numbers: number; lagMs: number; seconds: number };
  /** The largest imported size: that of the database for throughput and changes. */
  largestImport: number;
  throughput: Throughput[];
  changes?: Changes | undefined;
  sizes?: Record<string, TableSize[]>;
}

/** Bytes of a table and of its indexes. */
export interface TableSize {
  table: string;
  rows: number;
  indexes: number;
}

/** Writes all tables that have results: targets and pages of each version of PostgreSQL, the rest of the newest one. */
export async function writeReport(): Promise<void> {
  const files = (await readdir(RESULTS)).filter((name) => name.endsWith('.json'));
  const all: Results[] = await Promise.all(
    files.map(async (name) => JSON.parse(await readFile(join(RESULTS, name), 'utf8'))),
  );
  all.sort((a, b) => Number.parseFloat(a.version) - Number.parseFloat(b.version));
  const newest = all.slice(-1);
  const sections = {
    machine: all.map(({ version, machine }) => `- PostgreSQL ${version}: ${machine}`).join('\n'),
    targets: targetTable(all),
    pages: pageTable(all),
    throughput: throughputTable(newest[0]?.throughput ?? []),
    cost: costTable(newest[0]?.throughput ?? []),
    commands: commandTable(newest),
    writers: writerRateTable(newest),
    sizes: sizeTable(newest),
  };
  const written = Object.fromEntries(Object.entries(sections).filter(([, text]) => text !== ''));
  for (const document of ['docs/performance.md', 'docs/scaling.md']) await writeSections(document, written);
  const throughput = all.map((results) => throughputTable(results.throughput));
  console.log([targetTable(all), pageTable(all), ...throughput, commandTable(all), writerTable(all)].join('\n\n'));
}

const format = (value: number, digits = 0) =>
  value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });
const inMs = (value: number) => `${format(value)} ms`;
const inSeconds = (value: number) => `${format(value, 1)} s`;
const inMegabytes = (value: number) => `${format(value)} MB`;
const asRatio = (value: number) => `${format(value, 2)} ×`;
/** Returns a value and, in brackets, its ratio to `baseline`. */
const relative = (value: number, baseline: number, formatted = format(value)) =>
  `${formatted} (${format(value / baseline, 2)})`;
const sum = (values: number[]) => values.reduce((a, b) => a + b, 0);
const mean = (values: number[]) => sum(values) / values.length;

const longestTransaction = ({ writers }: CommandRun) => Math.max(...(writers?.longest ?? []));
const transactionsPerSecond = ({ writers, seconds }: CommandRun) => (writers?.transactions ?? 0) / seconds;
const failedTransactions = ({ writers }: CommandRun) => sum(Object.values(writers?.failed ?? {}));

const MEASURES = { perSecond: 'a second', node: 'Node', postgres: 'PostgreSQL' };

/** Returns the median of a measure, or of its ratios to `baseline` in the same rounds; NaN if it was not measured. */
function medianOf(measure: keyof Sample, samples: Sample[] = [], baseline?: Sample[]): number {
  const numberOf = (sample?: Sample) => sample?.[measure] ?? Number.NaN;
  return quantiles(samples.map((sample, round) => numberOf(sample) / (baseline ? numberOf(baseline[round]) : 1)))
    .median;
}

function samplesOf(throughput: Throughput[], server: string, load: Throughput['load']): Throughput['samples'] {
  return throughput.find((each) => each.name === server && each.load === load)?.samples ?? {};
}

function targetTable(all: Results[]): string {
  const largest = Math.max(...all.map(({ largestImport }) => largestImport));
  /** @param measured returns the result; undefined or NaN if it was not measured */
  const target = (
    name: string,
    limit: 'at least' | 'at most',
    bound: number,
    format: (value: number) => string,
    measured: (results: Results) => number | undefined,
  ) => {
    const cells = all.map((results) => {
      const value = measured(results) ?? Number.NaN;
      if (Number.isNaN(value)) return '–';
      const isMet = limit === 'at least' ? value >= bound : value <= bound;
      return isMet ? format(value) : `**missed: ${format(value)}**`;
    });
    return [name, `${limit} ${format(bound)}`, ...cells];
  };
  const speedup = (connections: number, bound: number) => {
    const name = `first pages against Fastify, connections: ${connections}`;
    return target(name, 'at least', bound, asRatio, ({ throughput }) => {
      const [ours, byHand] = [OURS, BY_HAND].map(({ name }) => samplesOf(throughput, name, 'first page')[connections]);
      return medianOf('perSecond', ours, byHand);
    });
  };
  const importName = `import of ${format(largest)}`;
  const firstImport = ({ commands }: Results) => commands[largest]?.[0];
  const copyRatio = (results: Results) =>
    (firstImport(results)?.seconds ?? Number.NaN) / (results.copySeconds[largest] ?? Number.NaN);
  const importPageTime = (results: Results) => firstImport(results)?.pages.p99;
  /** Returns a function that returns the highest value of all commands that ran beside writers. */
  const highest = (value: (run: CommandRun) => number) => (results: Results) =>
    results.besideWriters && Math.max(...results.besideWriters.runs.map(value));
  const changeRatio = ({ changes }: Results) => changes && changes.withTriggers / changes.bare;
  const rows = [
    speedup(1, 1.42),
    speedup(8, 1.76),
    speedup(64, 2.17),
    target(`${importName}, against bare COPY`, 'at most', 6, asRatio, copyRatio),
    target(`${importName}, memory`, 'at most', 200, inMegabytes, (results) => firstImport(results)?.memory),
    target(`${importName}, pages meanwhile, p99`, 'at most', 25, (value) => `${format(value, 1)} ms`, importPageTime),
    target("a writer's longest transaction beside commands", 'at most', 500, inMs, highest(longestTransaction)),
    target('failed transactions of writers', 'at most', 0, format, highest(failedTransactions)),
    target('a changed entry, against a bare table', 'at least', 0.3, asRatio, changeRatio),
  ];
  return table(['what', 'target', ...all.map(({ version }) => version)], rows);
}

/** Upper bounds in milliseconds. */
interface PageTarget {
  kind: RandomPages['kind'];
  name: string;
  pageSize: number;
  median?: number;
  /** The highest median, as a multiple of the time of a lookup. */
  medianInLookUps?: number;
  worst: number;
}

const PAGE_TARGETS: PageTarget[] = [
  { kind: 'one attribute', name: 'at most one', pageSize: 25, medianInLookUps: 6, worst: 12 },
  { kind: 'one attribute', name: 'at most one', pageSize: 100, worst: 25 },
  { kind: 'several attributes', name: 'two or three', pageSize: 25, median: 5, worst: 30 },
  { kind: 'several attributes', name: 'two or three', pageSize: 100, median: 5, worst: 30 },
];

function pageTable(all: Results[]): string {
  const sizes = [...new Set(all.flatMap(({ latencies }) => latencies.map(({ numbers }) => numbers)))];
  sizes.sort((a, b) => a - b);
  /** Returns a row for each size; what they have in common is in the first one. */
  const rowsOf = (name: string, pageSize: number, bounds: string, cell: (at: Latencies) => string) =>
    sizes.map((size, i) => {
      const atSize = all.map(({ latencies }) => latencies.find(({ numbers }) => numbers === size));
      const cells = atSize.map((latencies) => (latencies ? cell(latencies) : '–'));
      return i === 0 ? [name, pageSize, format(size), bounds, ...cells] : ['', '', format(size), '', ...cells];
    });
  const rows = PAGE_TARGETS.flatMap((target) => {
    const { name, pageSize, median = '–', medianInLookUps, worst } = target;
    const bounds = `${medianInLookUps ? `${medianInLookUps} ×` : median} / – / ${worst}`;
    return rowsOf(name, pageSize, bounds, (latencies) => pageCell(target, latencies));
  });
  const lookUps = rowsOf('one phone number', 1, '–', ({ lookUp }) => format(lookUp, 1));
  const head = all.map(({ version }) => `${version}: median / p95 / worst`);
  return table(['attributes', 'page', 'numbers', 'at most', ...head], [...lookUps, ...rows]);
}

function pageCell(target: PageTarget, { random, lookUp }: Latencies): string {
  const pages = random.find(({ kind, pageSize }) => kind === target.kind && pageSize === target.pageSize);
  if (!pages) return '–';
  const { median, p95, worst } = pages.times;
  const maxMedian = target.medianInLookUps ? target.medianInLookUps * lookUp : (target.median ?? Infinity);
  const boldIfOver = (value: number, max: number) => (value > max ? `**${format(value, 1)}**` : format(value, 1));
  const cell = `${boldIfOver(median, maxMedian)} / ${format(p95, 1)} / ${boldIfOver(worst, target.worst)}`;
  return pages.failed > 0 ? `${cell}, **${pages.failed} failed**` : cell;
}

/** Returns medians and, in brackets, those of the ratios to the contender `baseline` in the same rounds. */
export function throughputTable(throughput: Throughput[], baseline = BY_HAND.name): string {
  const measures = Object.entries(MEASURES) as [keyof Sample, string][];
  const rows = throughput
    .toSorted((a, b) => a.load.localeCompare(b.load))
    .map(({ load, name, samples }, i, list) => {
      const compared = samplesOf(throughput, baseline, load);
      const cell = (connections: number, measure: keyof Sample) => {
        const median = medianOf(measure, samples[connections]);
        const ratio = medianOf(measure, samples[connections], compared[connections]);
        if (Number.isNaN(median)) return '–';
        return name === baseline ? format(median) : `${format(median)} (${format(ratio, 2)})`;
      };
      return [
        load === list[i - 1]?.load ? '' : load,
        name,
        ...CONNECTIONS.flatMap((count) => measures.map(([measure]) => cell(count, measure))),
      ];
    });
  const head = CONNECTIONS.flatMap((count) => measures.map(([, word]) => `${count}: ${word}`));
  return table(['request', 'server', ...head], rows, [0, 1]);
}

/** Returns the CPU time of the parts of a request, and how many of them a core can do at 60 % load. */
function costTable(throughput: Throughput[]): string {
  const row = (part: string, name: string, measure: keyof Sample) => {
    const samples = samplesOf(throughput, name, 'first page');
    const costs = CONNECTIONS.map((count) => medianOf(measure, samples[count]));
    return [part, ...costs.map((cost) => `${format(cost)} µs (${format((0.6 * 1e6) / cost)})`)];
  };
  const rows = [
    row('a request, in Node', OURS.name, 'node'),
    row('its page, in PostgreSQL', OURS_UNLIMITED.name, 'postgres'),
    row('its page and its count, in PostgreSQL', OURS.name, 'postgres'),
  ];
  return table(['part', ...CONNECTIONS.map((count) => `connections: ${count}`)], throughput.length > 0 ? rows : []);
}

function commandTable(all: Results[]): string {
  const columns = all.map(({ commands, largestImport, besideWriters }) => [
    ...(commands[largestImport] ?? []).map((run) => ({ numbers: largestImport, run })),
    ...(besideWriters?.runs ?? []).map((run) => ({ numbers: besideWriters?.numbers ?? 0, run })),
  ]);
  const rows = (columns[0] ?? []).map(({ numbers, run: { name } }, index) => [
    name,
    format(numbers),
    ...columns.map(({ [index]: cell }) => {
      if (!cell) return '–';
      const { pages, seconds, memory } = cell.run;
      const times = [pages.median, pages.p99, pages.worst].map((time) => format(time)).join(' / ');
      const text = `${inSeconds(seconds)}, ${inMegabytes(memory)}, ${times}`;
      return pages.failed > 0 ? `${text}, **${pages.failed} failed**` : text;
    }),
  ]);
  if (all.some(({ replica }) => replica)) {
    const lag = ({ replica }: Results) =>
      replica ? `${inMs(replica.lagMs)} in ${inSeconds(replica.seconds)}, ${format(replica.numbers)} numbers` : '–';
    rows.push(["a replica's longest lag during a first import", '', ...all.map(lag)]);
  }
  return table(['command', 'numbers', ...all.map(({ version }) => version)], rows);
}

/** What writers do while a command runs. */
function writerTable(all: Results[]): string {
  const rows = all.flatMap(({ version, besideWriters }) =>
    (besideWriters?.runs ?? []).map((run) => {
      const longest = run.writers?.longest.map((time) => format(time)).join(' / ') ?? '–';
      return [run.name, version, format(transactionsPerSecond(run)), longest, failedTransactions(run)];
    }),
  );
  return table(['command', 'PostgreSQL', 'transactions a second', 'longest of each, ms', 'failed'], rows);
}

/** How fast writers are without a command beside them. */
function writerRateTable(all: Results[]): string {
  const counts = Object.keys(all.at(-1)?.changes?.ratesByWriters ?? {}).map(Number);
  if (counts.length === 0) return '';
  const rows = all.map(({ version, changes }) => [
    version,
    ...counts.map((count) => format(changes?.ratesByWriters[count] ?? Number.NaN)),
  ]);
  return table(['PostgreSQL', ...counts.map((count) => `writers: ${count}`)], rows);
}

/** Table sizes on the newest version; on other versions they differ by less than a hundredth. */
function sizeTable(all: Results[]): string {
  const { largestImport = 0, sizes = {} } = all.at(-1) ?? {};
  const cells = (bytes: number) => [inMegabytes(bytes / 1e6), `${format(bytes / largestImport)} B`];
  const rows = (sizes[largestImport] ?? []).map(({ table, rows, indexes }) => {
    return [`\`${table}\``, ...cells(rows), ...cells(indexes)];
  });
  rows.sort(([a = ''], [b = '']) => a.localeCompare(b));
  return table(['table', 'rows', 'per number', 'indexes', 'per number'], rows);
}

/** The results of one variant of the program in one round of `make bench-compare-commands`. */
export interface VariantResults {
  variant: string;
  runs: CommandRun[];
  /** Bytes of the indexes of `postings` after the first import. */
  indexBytes: number;
  ratesByWriters: RatesByWriters;
}

/**
 * Returns the means of all rounds, and the longest times; in brackets, their ratios to the first variant.
 *
 * @param rounds the results of each round, with the variants in the same order
 */
export function comparisonTable(rounds: VariantResults[][]): string {
  const [firstRound = []] = rounds;
  const variants = firstRound.map((_, index) => rounds.flatMap((round) => round[index] ?? []));
  const means = (value: (results: VariantResults) => number, formatted: (mean: number) => string = format) => {
    const values = variants.map((results) => mean(results.map(value)));
    return values.map((value) => relative(value, values[0] ?? Number.NaN, formatted(value)));
  };
  const rows = (firstRound[0]?.runs ?? []).flatMap(({ name, writers }, index) => {
    const runOf = ({ runs }: VariantResults) => runs[index] as CommandRun;
    const times = means((results) => runOf(results).seconds, inSeconds);
    const cpu = means((results) => runOf(results).cpu, inSeconds);
    const command = variants.map((results, variant) => {
      const runs = results.map(runOf);
      const memory = inMegabytes(mean(runs.map((run) => run.memory)));
      return `${times[variant]}, CPU ${cpu[variant]}, ${memory}, ${inMs(Math.max(...runs.map(({ pages }) => pages.worst)))}`;
    });
    const transactions = variants.map((results) => {
      const runs = results.map(runOf);
      const perSecond = format(mean(runs.map(transactionsPerSecond)));
      return `${inMs(Math.max(...runs.map(longestTransaction)))}, ${perSecond} a second, ${sum(runs.map(failedTransactions))} failed`;
    });
    return [[name, ...command], ...(writers ? [[`${name}: the writers`, ...transactions]] : [])];
  });
  for (const writers of Object.keys(firstRound[0]?.ratesByWriters ?? {}).map(Number)) {
    const rates = means(({ ratesByWriters }) => ratesByWriters[writers] ?? Number.NaN);
    rows.push([`changed entries a second, writers: ${writers}`, ...rates]);
  }
  const indexes = means(
    ({ indexBytes }) => indexBytes,
    (bytes) => inMegabytes(bytes / 1e6),
  );
  rows.push(["postings' indexes after the first import", ...indexes]);
  return table(['what', ...firstRound.map(({ variant }) => variant)], rows);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await writeReport();
