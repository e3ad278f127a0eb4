/** PgBouncer, if it is installed. */
import { spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { isListening } from './port.js';
import { endProcess, endWithThisProcess } from './process.js';

/** Starts PgBouncer with a configuration file, which any user may read; returns a function that stops it. */
export async function startPgbouncer(file: string): Promise<() => Promise<void>> {
  // It refuses to run as root.
  const user = process.getuid?.() === 0 ? ['-u', 'nobody'] : [];
  const child = spawn('pgbouncer', ['-q', ...user, file], { stdio: 'ignore' });
  endWithThisProcess(child);
  const [, host, port] = /^listen_addr = (.*)\nlisten_port = (.*)$/m.exec(await readFile(file, 'utf8')) ?? [];
  await isListening(Number(port), { host });
  return () => endProcess(child);
}
