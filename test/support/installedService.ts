/** A service that a command starts in another folder. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readlink } from 'node:fs/promises';
import { expect } from 'vitest';
import { listeningUrlIn } from './listeningUrl.js';
import { until } from './until.js';

const START_TIMEOUT_MS = 240_000; // `make start` installs and builds first
const STOP_TIMEOUT_MS = 30_000;

export interface StartedService {
  url: string;
  /** Returns its output so far. */
  output(): string;
  /** Terminates its process group, and waits until no process runs in the folder. */
  stop(): Promise<void>;
}

/** Starts `command` in `folder`, and returns once the service listens. */
export async function startIn(
  folder: string,
  command: string[],
  environment: NodeJS.ProcessEnv = process.env,
): Promise<StartedService> {
  const [file = '', ...args] = command;
  const child: ChildProcess = spawn(file, args, {
    cwd: folder,
    env: { ...environment, PORT: environment.PORT ?? '0', MAKEFLAGS: '' },
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (data) => (output += data));
  const end = () => child.pid && process.kill(-child.pid, 'SIGKILL');
  process.once('exit', end);
  child.once('exit', () => process.off('exit', end));
  const isDecided = () => listeningUrlIn(output) !== undefined || child.exitCode !== null;
  await until(isDecided, 'the service listens', START_TIMEOUT_MS);
  const url = listeningUrlIn(output);
  if (!url) throw new Error(`${command.join(' ')} ended with ${child.exitCode}:\n${output}`);
  return {
    url,
    output: () => output,
    async stop() {
      if (child.exitCode === null && child.signalCode === null) {
        const exited = once(child, 'exit');
        process.kill(-(child.pid ?? 0), 'SIGTERM');
        await exited;
      }
      await until(async () => (await processesIn(folder)).length === 0, `nothing runs in ${folder}`, STOP_TIMEOUT_MS);
    },
  };
}

/** Expects the first page of the demo data. */
export async function expectDemoPage(url: string): Promise<void> {
  const response = await fetch(`${url}/v1/brandedPhoneNumbers`);
  expect(response.status).toBe(200);
  expect(((await response.json()) as { items: object[] }).items).toHaveLength(25);
}

async function processesIn(folder: string): Promise<string[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const folders = await Promise.all(pids.map((pid) => readlink(`/proc/${pid}/cwd`).catch(() => '')));
  return pids.filter((_pid, index) => folders[index]?.startsWith(folder));
}
