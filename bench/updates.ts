/** Updates of single entries: the table with its triggers and a bare copy of it, measured alternately by pgbench. */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Sql } from 'postgres';
import { quantiles } from './latency.js';

const run = promisify(execFile);
const ROUNDS = 3;
const SECONDS = 3;
const CLIENTS = 2;

/** Updates a second: medians over several rounds. */
export interface Changes {
  withTriggers: number;
  bare: number;
  /** With triggers, by the number of writers. */
  writers: Record<number, number>;
}

const WRITERS = [1, 2, 4, 8];

/** Changes one entry of a random one of `numbers` in each update; undefined without pgbench. */
export async function measureChanges(url: string, sql: Sql, numbers: number): Promise<Changes | undefined> {
  await sql`CREATE TABLE bare (LIKE carrier_statuses INCLUDING ALL)`;
  await sql`INSERT INTO bare SELECT * FROM carrier_statuses`;
  await sql`ANALYZE bare`;
  const rates: Record<string, number[]> = { carrier_statuses: [], bare: [] };
  for (let round = 0; round < ROUNDS; round++) {
    for (const [table, ofTable] of Object.entries(rates)) {
      const rate = await rateOf(url, table, numbers, CLIENTS);
      if (rate === undefined) return undefined;
      ofTable.push(rate);
    }
  }
  const [withTriggers = 0, bare = 0] = Object.values(rates).map((each) => quantiles(each).median);
  return { withTriggers, bare, writers: (await measureWriters([url], numbers))?.[0] ?? {} };
}

/**
 * Returns the updates a second of 1, 2, 4 and 8 writers in each of the databases, measured in turns: medians over several
 * rounds, by the number of writers; undefined without pgbench.
 */
export async function measureWriters(urls: string[], numbers: number): Promise<Record<number, number>[] | undefined> {
  const measured: Record<number, number>[] = urls.map(() => ({}));
  for (const writers of WRITERS) {
    const rates: number[][] = urls.map(() => []);
    for (let round = 0; round < ROUNDS; round++) {
      for (const [index, url] of urls.entries()) {
        const rate = await rateOf(url, 'carrier_statuses', numbers, writers);
        if (rate === undefined) return undefined;
        rates[index]?.push(rate);
      }
    }
    for (const [index, each] of rates.entries())
      Object.assign(measured[index] ?? {}, { [writers]: quantiles(each).median });
  }
  return measured;
}

/** Returns the updates a second of entries in a table, each of a random number. */
async function rateOf(url: string, table: string, numbers: number, clients: number): Promise<number | undefined> {
  const script = join('.cache', `${table}.sql`);
  await writeFile(
    script,
    `\\set number random(1, ${numbers})
\\set status random(1, 9)
UPDATE ${table} SET detailed_status = (enum_range(NULL::detailed_status))[:status]
WHERE phone_number = '+1' || (2000000000 + :number * 7)::text AND carrier = 'AT&T' AND feature = 'brandedCallerId';
`,
  );
  return pgbench(url, script, clients, SECONDS);
}

/** Transactions a second of a script; undefined, with a message, if pgbench is not installed. */
export async function pgbench(
  url: string,
  script: string,
  clients: number,
  seconds: number,
): Promise<number | undefined> {
  const options = ['-n', '-M', 'prepared', '-f', script, '-c', clients, '-j', Math.min(clients, 2), '-T', seconds, url];
  try {
    const env = { ...process.env, PGOPTIONS: '-c plan_cache_mode=force_generic_plan -c jit=off' };
    const { stdout } = await run('pgbench', options.map(String), { env });
    return Number(/tps = ([\d.]+)/.exec(stdout)?.[1]);
  } catch (error) {
    if ((error as { code?: string }).code !== 'ENOENT') throw error;
    console.error('pgbench is not installed (Debian: postgresql-client or postgresql-contrib): left out');
    return undefined;
  }
}
