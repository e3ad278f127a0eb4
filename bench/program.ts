/** The built program: runs its commands and its service. */
import { execFile } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { packageFolder } from '../src/packageFolder.js';
import { type Server, startServer } from '../test/support/serverProcess.js';

const run = promisify(execFile);

/** The folder of results and generated files. */
export const RESULTS = join('.cache', 'bench');
mkdirSync(RESULTS, { recursive: true });

/** Returns the path of the program that was built in `folder`. */
export const mainOf = (folder: string) => resolve(folder, 'dist/src/main.js');
export const MAIN = mainOf(packageFolder);

/** Runs a command on the database at `url`. @throws unless it succeeds */
export async function runCommand(url: string, args: string[], main = MAIN): Promise<void> {
  await run(process.execPath, [main, ...args], { env: { ...process.env, DATABASE_URL: url } });
}

/** Serves the database at `url` without a rate limit. */
export function serve(url: string, main = MAIN): Promise<Server> {
  const environment = { DATABASE_URL: url, RATE_LIMIT_PER_SECOND: '0', LOG_LEVEL: 'silent' };
  return startServer([process.execPath, main, 'serve'], environment);
}
