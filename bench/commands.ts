/** The operator's commands: seconds, CPU and memory, and how long pages and other programs' writes take meanwhile. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { phoneNumberAt, writeNumbers } from '../test/support/generatedNumbers.js';
import type { Server } from '../test/support/serverProcess.js';
import { withConnection } from './database.js';
import { PATH, timeRequest } from './latency.js';
import { type Quantiles, quantiles } from './medians.js';
import { MAIN, RESULTS } from './program.js';
import { startWriters, type WriterResults } from './writers.js';

/** Input files of the commands. */
export interface Files {
  /** How many phone numbers are imported. */
  numbers: number;
  /** All of them, as NDJSON. */
  original: string;
  /** The same phone numbers with other attributes and carrier statuses. */
  changed: string;
  /** The first tenth of `changed`. */
  changedTenth: string;
  /** Every third phone number, as a list. */
  third: string;
}

interface Command {
  name: string;
  args(files: Files): string[];
  /** Whether `startWriters` writes meanwhile. */
  hasWriters?: boolean;
}

export interface CommandRun {
  name: string;
  seconds: number;
  /** CPU seconds of the command's process, and of the PostgreSQL connections of the command and of the writers. */
  cpu: number;
  /** Peak memory of the command's process in MB. */
  memory: number;
  /** Milliseconds of first pages requested meanwhile, and how many of those requests failed. */
  pages: Quantiles & { worst: number; failed: number };
  writers?: WriterResults;
}

/** Commands for an empty database, in the order in which they run. */
export const IMPORTS: Command[] = [
  { name: 'first import', args: ({ original }) => ['import', original] },
  { name: 'unchanged', args: ({ original }) => ['import', original] },
  { name: 'a tenth changed', args: ({ changedTenth }) => ['import', changedTenth] },
];
/** Commands for a database after `IMPORTS`, in the order in which they run. */
export const BESIDE_WRITERS: Command[] = [
  { name: 'all changed, beside writers', args: ({ changed }) => ['import', changed], hasWriters: true },
  { name: 'check, beside writers', args: () => ['check'], hasWriters: true },
  { name: 'delete of a third, beside writers', args: ({ third }) => ['delete', third], hasWriters: true },
];

/** Pause between two pages, long enough that they hardly slow down the command. */
const PAGE_INTERVAL_MS = 50;
/** Seed of the generator for changed numbers. */
const CHANGED_SEED = 7;
/** Linux's unit of CPU times in /proc, the same on all architectures that Node supports. */
const TICKS_PER_SECOND = 100;

/** Writes the input files for this many phone numbers. */
export async function writeFiles(numbers: number): Promise<Files> {
  const fileOf = (name: string) => join(RESULTS, `${numbers}.${name}`);
  const [original, changed] = [fileOf('original'), fileOf('changed')];
  const [changedTenth, third] = [fileOf('changedTenth'), fileOf('third')];
  await writeNumbers(original, numbers);
  await writeNumbers(changed, numbers, CHANGED_SEED);
  await writeNumbers(changedTenth, numbers / 10, CHANGED_SEED);
  const lines = Array.from({ length: Math.floor(numbers / 3) }, (_, index) => `${phoneNumberAt(3 * (index + 1))}\n`);
  await writeFile(third, lines.join(''));
  return { numbers, original, changed, changedTenth, third };
}

/** Runs a command of the program `main` on the database at `url`, which `server` serves. @throws unless it succeeds */
export async function measureCommand(
  { name, args, hasWriters = false }: Command,
  files: Files,
  { main = MAIN, jobs, url, server }: { main?: string; jobs?: number; url: string; server: Server },
): Promise<CommandRun> {
  const stopWriters = hasWriters ? startWriters(url, files.numbers) : undefined;
  const options = jobs === undefined || name.startsWith('check') ? [] : ['--jobs', String(jobs)];
  const postmaster = await postmasterPid(url);
  const postgresBefore = await cpuSeconds(postmaster, 'children');
  const start = performance.now();
  const child = spawn(process.execPath, [main, ...args(files), ...options], {
    env: { ...process.env, DATABASE_URL: url },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const exit = once(child, 'exit').then(([code]) => ({ code, seconds: (performance.now() - start) / 1000 }));
  let cpu = 0;
  let memory = 0;
  let failed = 0;
  const times: number[] = [];
  while (child.exitCode === null && child.signalCode === null) {
    const status = await readFile(`/proc/${child.pid}/status`, 'utf8').catch(() => '');
    memory = Math.max(memory, Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024);
    cpu = Math.max(cpu, await cpuSeconds(child.pid, 'self'));
    const { milliseconds, isOk } = await timeRequest(server.url + PATH);
    times.push(milliseconds);
    if (!isOk) failed++;
    await Promise.race([exit, sleep(PAGE_INTERVAL_MS)]);
  }
  const { code, seconds } = await exit;
  const writers = await stopWriters?.();
  if (code !== 0) throw new Error(`${name}: the command exited with status ${code}`);
  // The process of a PostgreSQL connection ends a little after the connection.
  await sleep(500);
  cpu += (await cpuSeconds(postmaster, 'children')) - postgresBefore;
  const pages = { ...quantiles(times), worst: Math.max(...times), failed };
  return { name, seconds, cpu, memory, pages, ...(writers && { writers }) };
}

/** Returns the process ID of the PostgreSQL server: the parent of the processes of all connections. */
export async function postmasterPid(url: string): Promise<number> {
  const [file] = await withConnection(url, (sql) => sql`SELECT pg_read_file('postmaster.pid') AS text`);
  return Number.parseInt(file?.text, 10);
}

/** Returns the CPU time of a process, or of its children that have ended; 0 if the process has ended. */
async function cpuSeconds(pid: number | undefined, scope: 'self' | 'children'): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const [user = 0, system = 0] = fields.slice(scope === 'self' ? 11 : 13).map(Number);
  return (user + system) / TICKS_PER_SECOND;
}

/** Returns the seconds of a bare COPY of all imported and derived rows into tables without indexes and keys. */
export function measureCopy(url: string): Promise<number> {
  return withConnection(url, async (sql) => {
    let seconds = 0;
    for (const table of ['business_profiles', 'branded_phone_numbers', 'carrier_statuses', 'items', 'postings']) {
      const file = `/tmp/bench_${table}.copy`;
      await sql.unsafe(`COPY (TABLE ${table}) TO '${file}'`);
      await sql.unsafe(`CREATE TABLE bare_${table} (LIKE ${table} INCLUDING CONSTRAINTS)`);
      const start = performance.now();
      await sql.unsafe(`COPY bare_${table} FROM '${file}'`);
      seconds += (performance.now() - start) / 1000;
      await sql.unsafe(`DROP TABLE bare_${table}`);
      // The file belongs to PostgreSQL's user, so PostgreSQL has to remove it.
      await sql.unsafe(`COPY (SELECT) TO PROGRAM 'cat >${file}; rm ${file}'`);
    }
    return seconds;
  });
}
