/** What operators do, command by command: seconds, memory, and how long pages and other programs' writes take meanwhile. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { finished } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from 'postgres';
import { connectTo } from '../test/support/connection.js';
import { phoneNumberAt, writeNumbers } from '../test/support/generatedNumbers.js';
import type { Server } from '../test/support/measuredServer.js';
import { PATH, type Quantiles, quantiles } from './latency.js';
import { startWriters, type Writing } from './writers.js';

/** Of the servers on which commands are measured. */
export const SETTINGS = { shared_buffers: '1GB', max_wal_size: '4GB', maintenance_work_mem: '256MB' };

/** Numbers that are imported, and their commands. */
export interface Files {
  numbers: number;
  /** The numbers; with other contents; a tenth of them with other contents; phone numbers of a third. */
  first: string;
  other: string;
  tenth: string;
  third: string;
}

interface Command {
  what: string;
  args(files: Files): string[];
  /** Whether others write meanwhile. */
  isBesideWriters?: boolean;
}

/** A command that was run. */
export interface Operation {
  what: string;
  seconds: number;
  /** Seconds of CPU of its process and its connections, and of the writers' connections. */
  cpu: number;
  /** The peak memory of its process, in MB. */
  memory: number;
  /** Milliseconds of first pages that are requested at intervals meanwhile, and how many were not served. */
  pages: Quantiles & { worst: number; failed: number };
  writing?: Writing;
}

/** From an empty database. */
export const FILLING: Command[] = [
  { what: 'first import', args: ({ first }) => ['import', first] },
  { what: 'unchanged', args: ({ first }) => ['import', first] },
  { what: 'a tenth changed', args: ({ tenth }) => ['import', tenth] },
];
/** After those. */
export const CHANGING: Command[] = [
  { what: 'all changed, beside writers', args: ({ other }) => ['import', other], isBesideWriters: true },
  { what: 'check, beside writers', args: () => ['check'], isBesideWriters: true },
  { what: 'delete of a third, beside writers', args: ({ third }) => ['delete', third], isBesideWriters: true },
];

/** Between two pages: long enough that they hardly slow the command. */
const PAGE_INTERVAL_MS = 50;
const OTHER_SEED = 7;
/** Of Linux, on every architecture that Node runs on. */
const TICKS_A_SECOND = 100;

/** Writes the files of the commands. */
export async function writeFiles(numbers: number): Promise<Files> {
  const [first, other, tenth, third] = ['first', 'other', 'tenth', 'third'].map((name) =>
    join('.cache', `${numbers}.${name}`),
  ) as [string, string, string, string];
  await writeNumbers(first, numbers);
  await writeNumbers(other, numbers, OTHER_SEED);
  await writeNumbers(tenth, numbers / 10, OTHER_SEED);
  const output = createWriteStream(third);
  for (let index = 3; index <= numbers; index += 3) output.write(`${phoneNumberAt(index)}\n`);
  output.end();
  await finished(output);
  return { numbers, first, other, tenth, third };
}

/** Runs a command of the program `main` on the database at `url`, which `server` serves. @throws unless it succeeds */
export async function measureCommand(
  { what, args, isBesideWriters = false }: Command,
  files: Files,
  { main, jobs, url, server }: { main: string; jobs?: number | undefined; url: string; server: Server },
): Promise<Operation> {
  const stopWriters = isBesideWriters ? startWriters(url, files.numbers) : undefined;
  const options = jobs === undefined || what.startsWith('check') ? [] : ['--jobs', String(jobs)];
  const postmaster = await postmasterOf(url);
  const cpuBefore = await cpuOf(postmaster, 'of its ended processes');
  const start = performance.now();
  const child = spawn(process.execPath, [main, ...args(files), ...options], {
    env: { ...process.env, DATABASE_URL: url },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  let seconds: number | undefined;
  const exit = once(child, 'exit').finally(() => (seconds = (performance.now() - start) / 1000));
  let cpu = 0;
  let memory = 0;
  let failed = 0;
  const times: number[] = [];
  while (seconds === undefined) {
    const status = await readFile(`/proc/${child.pid}/status`, 'utf8').catch(() => '');
    memory = Math.max(memory, Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024);
    cpu = Math.max(cpu, await cpuOf(child.pid, 'its own'));
    const asked = performance.now();
    const response = await fetch(server.url + PATH);
    await response.arrayBuffer();
    times.push(performance.now() - asked);
    if (!response.ok) failed++;
    await Promise.race([exit, sleep(PAGE_INTERVAL_MS)]);
  }
  const [code] = await exit;
  const writing = await stopWriters?.();
  if (code !== 0) throw new Error(`${what}: the command ended with ${code}`);
  // A server's process ends a little after its connection.
  await sleep(500);
  cpu += (await cpuOf(postmaster, 'of its ended processes')) - cpuBefore;
  const pages = { ...quantiles(times), worst: Math.max(...times), failed };
  return { what, seconds, cpu, memory, pages, ...(writing && { writing }) };
}

/** Returns the id of the process that starts a process for each connection to the server. */
async function postmasterOf(url: string): Promise<number> {
  const sql = connectTo(url);
  const [file] = await sql`SELECT pg_read_file('postmaster.pid') AS text`;
  await sql.end();
  return Number.parseInt(file?.text, 10);
}

/** Returns the seconds of CPU that a process has used, or its processes that have ended; 0 if it is gone. */
async function cpuOf(pid: number | undefined, which: 'its own' | 'of its ended processes'): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const [user = 0, system = 0] = fields.slice(which === 'its own' ? 11 : 13).map(Number);
  return (user + system) / TICKS_A_SECOND;
}

/** Seconds of bare COPY of all rows that an import wrote, including derived ones, into tables without indexes and keys. */
export async function copyAgain(sql: Sql): Promise<number> {
  let seconds = 0;
  for (const table of ['business_profiles', 'branded_phone_numbers', 'carrier_statuses', 'items', 'postings']) {
    const file = `/tmp/bench_${table}.copy`;
    await sql.unsafe(`COPY (TABLE ${table}) TO '${file}'`);
    await sql.unsafe(`CREATE TABLE bare_${table} (LIKE ${table} INCLUDING CONSTRAINTS)`);
    const start = performance.now();
    await sql.unsafe(`COPY bare_${table} FROM '${file}'`);
    seconds += (performance.now() - start) / 1000;
    await sql.unsafe(`DROP TABLE bare_${table}`);
    await sql.unsafe(`COPY (SELECT) TO PROGRAM 'cat >${file}; rm ${file}'`);
  }
  return seconds;
}
