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
}

/** Changes one entry of a random one of `numbers` in each update; undefined without pgbench. */
export async function measureChanges(url: string, sql: Sql, numbers: number): Promise<Changes | undefined> {
  await sql`CREATE TABLE bare (LIKE carrier_statuses INCLUDING ALL)`;
  await sql`INSERT INTO bare SELECT * FROM carrier_statuses`;
  await sql`ANALYZE bare`;
  const rates: Record<string, number[]> = { carrier_statuses: [], bare: [] };
  for (let round = 0; round < ROUNDS; round++) {
    for (const [table, ofTable] of Object.entries(rates)) {
      const script = join('.cache', `${table}.sql`);
      await writeFile(
        script,
        `\\set number random(1, ${numbers})
\\set status random(1, 9)
UPDATE ${table} SET detailed_status = (enum_range(NULL::detailed_status))[:status]
WHERE phone_number = '+1' || (2000000000 + :number * 7)::text AND carrier = 'AT&T' AND feature = 'brandedCallerId';
`,
      );
      const rate = await pgbench(url, script, CLIENTS, SECONDS);
      if (rate === undefined) return undefined;
      ofTable.push(rate);
    }
  }
  const [withTriggers = 0, bare = 0] = Object.values(rates).map((each) => quantiles(each).median);
  return { withTriggers, bare };
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
