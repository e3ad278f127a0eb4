/** Servers as processes: the service, built here or installed elsewhere, and those that it is compared with. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { packageFolder } from '../../src/packageFolder.js';
import { freePort } from './port.js';
import { processesIn, withoutNpm } from './process.js';
import { until } from './until.js';

const START_TIMEOUT_MS = 240_000; // `make start` installs and builds first
const STOP_TIMEOUT_MS = 30_000;

/** The path of the built program, and the command that serves with it. */
export const MAIN = join(packageFolder, 'dist/src/main.js');
export const SERVE = [process.execPath, MAIN, 'serve'];

export interface Server {
  url: string;
  child: ChildProcess;
  /** Returns its output so far; empty unless it has a folder. */
  output(): string;
  /** Sends a signal, by default SIGTERM; if it has a folder, to its process group. Waits until nothing of it runs any more. */
  stop(signal?: NodeJS.Signals): Promise<void>;
}

interface Options {
  /** Its working folder, in which nothing else runs; by default that of this process. */
  folder?: string;
  /** The path that responds with 200 once it is ready. */
  path?: string;
}

/** Starts a server and waits until it is ready. It listens on HOST and PORT, by default on a free port of 127.0.0.1. */
export async function startServer(
  command: string[],
  environment: NodeJS.ProcessEnv = {},
  { folder, path = '/readyz' }: Options = {},
): Promise<Server> {
  const { HOST = '127.0.0.1', PORT = String(await freePort()) } = environment;
  const [file = '', ...args] = command;
  const child = spawn(file, args, {
    cwd: folder,
    env: { ...withoutNpm(), NODE_ENV: undefined, MAKEFLAGS: '', ...environment, PORT },
    // Otherwise Ctrl-C ends it with this process.
    detached: folder !== undefined,
    stdio: folder ? ['ignore', 'pipe', 'pipe'] : ['ignore', 'ignore', 'inherit'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (data) => (output += data));
  const hasExited = () => child.exitCode !== null || child.signalCode !== null;
  const exited = once(child, 'exit');
  const send = (signal: NodeJS.Signals) => {
    if (child.pid && !hasExited()) process.kill(folder ? -child.pid : child.pid, signal);
  };
  const kill = () => send('SIGKILL');
  process.once('exit', kill);
  child.once('exit', () => process.off('exit', kill));

  const url = `http://${HOST}:${PORT}`;
  const isReady = async () => {
    const response = await fetch(url + path).catch(() => undefined);
    await response?.arrayBuffer();
    return response?.ok || hasExited();
  };
  await until(isReady, `${command.join(' ')} responds at ${path}`, START_TIMEOUT_MS).finally(() => {
    if (hasExited()) throw new Error(`${command.join(' ')} ended with ${child.exitCode}:\n${output}`);
  });
  return {
    url,
    child,
    output: () => output,
    async stop(signal = 'SIGTERM') {
      send(signal);
      await Promise.race([exited, sleep(STOP_TIMEOUT_MS, undefined, { ref: false })]);
      if (!hasExited()) throw new Error(`${command.join(' ')} does not stop`);
      if (!folder) return;
      await until(async () => (await processesIn(folder)).length === 0, `nothing runs in ${folder}`, STOP_TIMEOUT_MS);
    },
  };
}

/** Returns the peak memory of a server, in MiB. */
export function peakMemoryOf({ child }: Server): number {
  const status = readFileSync(`/proc/${child.pid}/status`, 'utf8');
  return Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1]) / 1024;
}
