/** Redis servers and sentinels for tests, if redis-server is installed. */
import { type ChildProcess, spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { freePort, isListening } from './port.js';
import { endProcess, endWithThisProcess } from './process.js';
import { isInstalled } from './programs.js';
import { makeFolder, removeFolder } from './temporaryFolder.js';

export const hasRedis = isInstalled('redis-server');

export interface TestRedis {
  port: number;
  url: string;
  /** Kills it with SIGKILL. */
  kill(): Promise<void>;
  start(...options: string[]): Promise<void>;
  configure(setting: string, value: string): Promise<void>;
  /** Removes all keys. */
  clear(): Promise<void>;
  pause(): void;
  resume(): void;
}

/** Starts a Redis on a free port of 127.0.0.1; by default it keeps nothing on disk. */
export const startRedis = async (...given: string[]) => startRedisAt('127.0.0.1', await freePort(), ...given);

export async function startRedisAt(host: string, port: number, ...given: string[]): Promise<TestRedis> {
  let child: ChildProcess;
  async function start(...options: string[]): Promise<void> {
    const settings = ['--port', String(port), '--bind', host, '--save', '', '--appendonly', 'no'];
    // A replica keeps the primary's data in memory: other servers in this folder would load a file.
    const replication = ['--repl-diskless-load', 'swapdb'];
    const args = [...settings, ...replication, ...given, ...options];
    child = spawn('redis-server', args, { stdio: 'ignore', cwd: '/tmp' });
    endWithThisProcess(child);
    await isListening(port, { host });
  }
  async function call(...command: [string, ...string[]]): Promise<void> {
    const client = new Redis(port, host);
    await client.call(...command);
    client.disconnect();
  }
  await start();
  return {
    port,
    url: `redis://${host}:${port}`,
    kill: () => endProcess(child),
    start,
    configure: (setting, value) => call('CONFIG', 'SET', setting, value),
    clear: () => call('FLUSHALL'),
    pause: () => child.kill('SIGSTOP'),
    resume: () => child.kill('SIGCONT'),
  };
}

/** Starts a sentinel for a primary named `main`; `quorum` sentinels replace it after it has been silent for 2 s. */
export async function startSentinel(primary: number, quorum: number, ...lines: string[]) {
  const folder = await makeFolder('branded-phone-numbers-sentinel-');
  const [port, file] = [await freePort(), join(folder, 'sentinel.conf')];
  const settings = [
    ...[`port ${port}`, 'bind 127.0.0.1', `dir ${folder}`, `sentinel monitor main 127.0.0.1 ${primary} ${quorum}`],
    ...['sentinel down-after-milliseconds main 2000', 'sentinel failover-timeout main 6000', ...lines],
  ];
  await writeFile(file, settings.join('\n'));
  const child = spawn('redis-server', [file, '--sentinel'], { stdio: 'ignore' });
  endWithThisProcess(child);
  await isListening(port);
  return {
    port,
    async kill() {
      await endProcess(child);
      await removeFolder(folder);
    },
  };
}
