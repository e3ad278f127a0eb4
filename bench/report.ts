/** docs/performance.md's tables and its chart, from what was measured. */
import { readFile, writeFile } from 'node:fs/promises';
import { cpus, totalmem } from 'node:os';
import { fileURLToPath } from 'node:url';
import type { Latency } from './latency.js';
import type { Results } from './main.js';

const PAGE = 'docs/performance.md';

/** Writes the tables between the page's markers, and the chart beside it. */
export async function writeReport(results: Results): Promise<void> {
  const sections: Record<string, string> = {
    machine: machine(),
    latency: latencyTable(results.latencies),
    worst: worstTable(results.latencies),
    growth: growthTable(results.latencies),
    throughput: throughputTable(results.throughput),
    importing: importTable(results.importing),
  };
  let page = await readFile(PAGE, 'utf8');
  for (const [name, table] of Object.entries(sections)) {
    const section = new RegExp(`(<!-- bench:${name} -->\n)[^]*?(<!-- /bench -->)`);
    if (table !== '') page = page.replace(section, (_, start, end) => `${start}\n${table}\n\n${end}`);
    if (table !== '') console.log(`\n${table}`);
  }
  await writeFile(PAGE, page);
  await writeFile('docs/performance.svg', chart(results.latencies));
}

function machine(): string {
  const date = new Date().toISOString().slice(0, 10);
  return `${date}, ${cpus().length} × ${cpus()[0]?.model}, ${Math.round(totalmem() / 2 ** 30)} GB, Node ${process.version}`;
}

const ms = (value: number) => value.toFixed(2);
const named = (size: string) => Number(size).toLocaleString('en');

function table(head: string[], rows: string[][]): string {
  const line = (cells: string[]) => `| ${cells.join(' | ')} |`;
  return [line(head), line(head.map((_, index) => (index === 0 ? '---' : '---:'))), ...rows.map(line)].join('\n');
}

function latencyTable(latencies: Results['latencies']): string {
  const sizes = Object.keys(latencies);
  const [smallest = '', largest = ''] = [sizes[0], sizes.at(-1)];
  const head = [
    'shape',
    ...sizes.flatMap((size) => [`${named(size)}: database`, 'request', 'rows', 'buffers']),
    'ratio',
  ];
  const find = (size: string, shape: string) => latencies[size]?.find((each) => each.shape === shape) as Latency;
  const rows = (latencies[smallest] ?? []).map(({ shape }) => {
    const cells = sizes.flatMap((size) => {
      const { database, request, rows, buffers } = find(size, shape);
      const whole = request ? `${ms(request.median)} / ${ms(request.p99)}` : '';
      return [`${ms(database.median)} / ${ms(database.p99)}`, whole, String(rows), String(buffers)];
    });
    const [small, large] = [find(smallest, shape), find(largest, shape)];
    const [median, p99] = (['median', 'p99'] as const).map((part) => large.database[part] / small.database[part]);
    const fuller = small.items < large.items ? ` (${small.items} → ${large.items} items)` : '';
    return [shape, ...cells, `${ms(median ?? 0)} / ${ms(p99 ?? 0)}${fuller}`];
  });
  return table(head, rows);
}

/** Milliseconds of the median database time: the targets, and how far the worst shape of each kind is from it. */
const TARGETS = { one: 1.5, several: 5, bounded: 30 };

function worstTable(latencies: Results['latencies']): string {
  const rows = Object.entries(latencies).flatMap(([size, all]) =>
    Object.entries(TARGETS).map(([kind, target]) => {
      const shapes = all.filter((each) => each.kind === kind).sort((a, b) => b.database.median - a.database.median);
      const [worst] = shapes;
      return [
        kind,
        named(size),
        `${target} ms`,
        share(shapes, ({ database }) => database.median <= target),
        `${ms(worst?.database.median ?? 0)} ms (${worst?.shape})`,
      ];
    }),
  );
  return table(['shapes', 'numbers', 'median at most', 'met', 'slowest median'], rows);
}

const share = (shapes: Latency[], isMet: (each: Latency) => boolean) =>
  `${shapes.filter(isMet).length} of ${shapes.length}`;

/** The most that a p99 may grow from the smallest size. */
const GROWTH = 1.5;

/** How many shapes have grown no more than they may, beside how many do by chance, of a size against itself. */
function growthTable(latencies: Results['latencies']): string {
  const [smallest = [], ...larger] = Object.values(latencies);
  const sizes = Object.keys(latencies);
  const before = ({ shape }: Latency) => smallest.find((each) => each.shape === shape) as Latency;
  const grewLittle =
    (part: 'p95' | 'p99') =>
    (each: Latency): boolean =>
      each.database[part] <= GROWTH * before(each).database[part];
  const rows = larger.flatMap((all, index) =>
    Object.keys(TARGETS).map((kind) => {
      const shapes = all.filter((each) => each.kind === kind);
      return [
        kind,
        named(sizes[index + 1] ?? ''),
        share(shapes, grewLittle('p99')),
        share(shapes, ({ halves: [half, other] }) => half <= GROWTH * other),
        share(shapes, grewLittle('p95')),
        share(
          shapes.filter((each) => each.items === before(each).items),
          grewLittle('p95'),
        ),
      ];
    }),
  );
  return table(
    [
      `at most ${GROWTH} × the value at ${named(sizes[0] ?? '')}`,
      'numbers',
      'p99',
      'p99, size against itself',
      'p95',
      'p95, where the page is as full',
    ],
    rows,
  );
}

function throughputTable(throughput: Results['throughput']): string {
  if (throughput.length === 0) return '';
  const names = [...new Set(throughput.map(({ name }) => name))];
  const counts = [...new Set(throughput.map(({ connections }) => connections))];
  const of = (name: string, count: number) =>
    throughput.find((each) => each.name === name && each.connections === count)?.perSecond ?? Number.NaN;
  const rows = names.map((name) => [
    name,
    ...counts.map((count) => `${Math.round(of(name, count))} (${ms(of(name, count) / of(names[0] ?? '', count))})`),
  ]);
  return table(['requests/s (× (a))', ...counts.map((count) => `${count} connection${count === 1 ? '' : 's'}`)], rows);
}

function importTable(importing: Results['importing']): string {
  if (importing.length === 0) return '';
  const rows = importing.map(({ numbers, seconds, copySeconds, memory, pages }) => [
    named(String(numbers)),
    `${seconds.toFixed(1)} s`,
    `${copySeconds.toFixed(1)} s`,
    ms(seconds / copySeconds),
    `${Math.round(memory)} MB`,
    `${ms(pages.median)} / ${ms(pages.p99)} / ${ms(pages.most)} ms`,
  ]);
  return table(
    ['numbers', 'import', 'bare COPY', 'ratio', 'memory of the import', 'pages meanwhile: median / p99 / slowest'],
    rows,
  );
}

/** Median database time of each shape against the number of numbers, both logarithmic. */
function chart(latencies: Results['latencies']): string {
  const sizes = Object.keys(latencies).map(Number);
  const colours = { one: '#1a7f5a', several: '#b06a00', bounded: '#7a3fb0' };
  const x = (size: number) => 70 + ((Math.log10(size) - 5) / 2) * 440;
  const y = (time: number) => 300 - ((Math.log10(Math.max(time, 0.1)) + 1) / 3) * 260;
  const parts: string[] = [];
  for (const time of [0.1, 1, 10, 100]) {
    parts.push(
      `<line x1="70" x2="510" y1="${y(time)}" y2="${y(time)}" stroke="#ccc"/><text x="62" y="${y(time) + 4}" text-anchor="end">${time} ms</text>`,
    );
  }
  for (const size of sizes)
    parts.push(`<text x="${x(size)}" y="322" text-anchor="middle">${named(String(size))}</text>`);
  for (const { shape, kind } of latencies[String(sizes[0])] ?? []) {
    const points = sizes.map((size) => {
      const found = latencies[String(size)]?.find((each) => each.shape === shape);
      return `${x(size).toFixed(1)},${y(found?.database.median ?? 0.1).toFixed(1)}`;
    });
    parts.push(
      `<polyline points="${points.join(' ')}" fill="none" stroke="${colours[kind]}" stroke-opacity="0.55"><title>${shape.replaceAll('&', '&amp;')}</title></polyline>`,
    );
  }
  Object.entries(colours).forEach(([kind, colour], index) => {
    parts.push(`<text x="${80 + index * 90}" y="22" fill="${colour}">${kind}</text>`);
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 560 335" font-family="sans-serif" font-size="12" role="img" aria-label="Median database time of each shape at each size"><rect width="560" height="335" fill="#fff"/>${parts.join('')}</svg>\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await writeReport(JSON.parse(await readFile('.cache/bench.json', 'utf8')));
}
