/** The built command, serving until a test ends it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { type Agent, get } from 'node:http';
import { join } from 'node:path';
import { afterEach, beforeEach } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';
import { createDatabase } from '../database.js';
import { listeningUrl } from '../listeningUrl.js';

export const PATH = '/v1/brandedPhoneNumbers';
const children: ChildProcess[] = [];
export let databaseUrl: string;

/** A database for each test, since an instance that was killed counts there for some seconds; what still runs is killed. */
export function useCommandThatServes(): void {
  let drop: () => Promise<void>;
  beforeEach(async () => {
    ({ url: databaseUrl, drop } = await createDatabase());
  });
  afterEach(async () => {
    for (const child of children.splice(0)) child.kill('SIGKILL');
    await drop();
  });
}

export async function serve(environment: Record<string, string> = {}): Promise<{ child: ChildProcess; url: string }> {
  const child = spawn(process.execPath, [join(packageFolder, 'dist/src/main.js'), 'serve'], {
    env: { ...process.env, DATABASE_URL: databaseUrl, PORT: '0', RATE_LIMIT_PER_SECOND: '0', ...environment },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  children.push(child);
  return { child, url: await listeningUrl(child.stdout) };
}

/** Sends a request: the answer's status and whether its connection ends. */
export function ask(url: string, agent?: Agent): Promise<{ status: number | undefined; ends: boolean }> {
  return new Promise((resolve, reject) => {
    get(url, agent ? { agent } : {}, (response) => {
      response.resume();
      response.once('end', () =>
        resolve({ status: response.statusCode, ends: response.headers.connection === 'close' }),
      );
    }).once('error', reject);
  });
}

/** What a command ends with. */
export async function codeOf(child: ChildProcess): Promise<number | null> {
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  return child.exitCode;
}
