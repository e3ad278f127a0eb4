/** The import: its time relative to bare COPY of the same rows, its memory, and the pages that are served meanwhile. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from 'postgres';
import type { Server } from '../test/support/measuredServer.js';
import { PATH, type Quantiles, quantiles } from './latency.js';

export interface Importing {
  numbers: number;
  seconds: number;
  /** Bare COPY of all rows that the import wrote, including derived ones, into the same tables without indexes and keys. */
  copySeconds: number;
  /** The peak memory of the importing process, in MB. */
  memory: number;
  pages: Pages;
  /** A second import, of changed contents for some of the numbers. */
  change: { numbers: number; seconds: number; pages: Pages };
}

/** Times of first pages that are requested at intervals during an import, in milliseconds. */
export type Pages = Quantiles & { worst: number };

/** Between two pages: long enough that they hardly slow the import. */
const PAGE_INTERVAL_MS = 50;

/** Imports `file` and then `changes` into the database at `url`, which `server` serves. */
export async function measureImport(
  url: string,
  sql: Sql,
  { file, changes }: { file: string; changes: { file: string; numbers: number } },
  server: Server,
): Promise<Importing> {
  const first = await importFile(url, file, server);
  const [counted] = await sql`SELECT count(*)::int AS numbers FROM items`;
  const copySeconds = await copyAgain(sql);
  const { seconds, pages } = await importFile(url, changes.file, server);
  return { ...first, numbers: counted?.numbers, copySeconds, change: { numbers: changes.numbers, seconds, pages } };
}

async function importFile(url: string, file: string, server: Server) {
  const start = performance.now();
  const child = spawn(process.execPath, ['dist/src/main.js', 'import', file], {
    env: { ...process.env, DATABASE_URL: url },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const exit = once(child, 'exit');
  let isRunning = true;
  exit.then(() => (isRunning = false));
  let memory = 0;
  const times: number[] = [];
  while (isRunning) {
    const status = await readFile(`/proc/${child.pid}/status`, 'utf8').catch(() => '');
    memory = Math.max(memory, Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024);
    const asked = performance.now();
    await (await fetch(server.url + PATH)).arrayBuffer();
    times.push(performance.now() - asked);
    await Promise.race([exit, sleep(PAGE_INTERVAL_MS)]);
  }
  const [code] = await exit;
  if (code !== 0) throw new Error(`the import ended with ${code}`);
  const pages = { ...quantiles(times), worst: Math.max(...times) };
  return { seconds: (performance.now() - start) / 1000, memory, pages };
}

async function copyAgain(sql: Sql): Promise<number> {
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
