/** Measures SQL scripts with pgbench. */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { isInstalled } from '../test/support/programs.js';
import { RESULTS } from './program.js';

const run = promisify(execFile);

/** If pgbench is not installed (Debian: postgresql-contrib), its measurements are skipped. */
export const hasPgbench = isInstalled('pgbench');

/** Returns the transactions per second of `clients` that run the SQL of a pgbench script for some seconds. */
export async function pgbench(url: string, sql: string, clients: number, seconds: number): Promise<number> {
  const script = join(RESULTS, 'pgbench.sql');
  await writeFile(script, sql);
  const options = ['-n', '-M', 'prepared', '-f', script, '-c', clients, '-j', Math.min(clients, 2), '-T', seconds, url];
  const env = { ...process.env, PGOPTIONS: '-c plan_cache_mode=force_generic_plan -c jit=off' };
  const { stdout } = await run('pgbench', options.map(String), { env });
  return Number(/tps = ([\d.]+)/.exec(stdout)?.[1]);
}
