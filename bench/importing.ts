/** The import: its time against bare COPY of the same rows, its memory, and the pages that are served during one. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from 'postgres';
import { type Quantiles, quantiles } from './latency.js';
import type { Server } from './server.js';

export interface Importing {
  numbers: number;
  seconds: number;
  /** Of bare COPY of all rows that the import wrote, derived ones too, into the same tables without indexes and keys. */
  copySeconds: number;
  /** The most memory that the importing process had, in MB. */
  memory: number;
  /** Milliseconds of a first page asked for over and over during an import. */
  pages: Quantiles & { most: number };
}

/** Imports `file` into the database at `url`: alone, and once more while `server`, which serves it, is asked for pages. */
export async function measureImport(url: string, sql: Sql, file: string, server: Server): Promise<Importing> {
  const { seconds, memory } = await importFile(url, file, async () => {});
  const [counted] = await sql`SELECT count(*)::int AS numbers FROM branded_phone_numbers`;
  const copySeconds = await copyAgain(sql);
  await sql`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`;
  const pages: number[] = [];
  await importFile(url, file, async () => {
    const asked = performance.now();
    await (await fetch(`${server.url}/v1/brandedPhoneNumbers`)).arrayBuffer();
    pages.push(performance.now() - asked);
  });
  return {
    numbers: counted?.numbers,
    seconds,
    copySeconds,
    memory,
    pages: { ...quantiles(pages), most: Math.max(...pages) },
  };
}

/** Runs the command, doing `meanwhile` over and over. `memory` is the most that it had, in MB. */
async function importFile(url: string, file: string, meanwhile: () => Promise<void>) {
  const start = performance.now();
  const child = spawn(process.execPath, ['dist/src/main.js', 'import', file], {
    env: { ...process.env, DATABASE_URL: url },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const exit = once(child, 'exit');
  let isRunning = true;
  exit.then(() => (isRunning = false));
  let memory = 0;
  while (isRunning) {
    const status = await readFile(`/proc/${child.pid}/status`, 'utf8').catch(() => '');
    memory = Math.max(memory, Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024);
    await meanwhile();
    await sleep(20);
  }
  const [code] = await exit;
  if (code !== 0) throw new Error(`the import ended with ${code}`);
  return { seconds: (performance.now() - start) / 1000, memory };
}

async function copyAgain(sql: Sql): Promise<number> {
  let seconds = 0;
  for (const table of ['business_profiles', 'branded_phone_numbers', 'carrier_statuses', 'listings']) {
    const file = `/tmp/bench_${table}.copy`;
    await sql.unsafe(`COPY ${table} TO '${file}'`);
    await sql.unsafe(`CREATE TABLE bare_${table} (LIKE ${table} INCLUDING CONSTRAINTS)`);
    const start = performance.now();
    await sql.unsafe(`COPY bare_${table} FROM '${file}'`);
    seconds += (performance.now() - start) / 1000;
    await sql.unsafe(`DROP TABLE bare_${table}`);
    await sql.unsafe(`COPY (SELECT) TO PROGRAM 'cat >${file}; rm ${file}'`);
  }
  return seconds;
}
