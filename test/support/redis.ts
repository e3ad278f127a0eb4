/** A Redis of the test's own, where the program is installed. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { freePort, isListening } from './port.js';

export const hasRedis = spawnSync('redis-server', ['--version']).status === 0;
if (!hasRedis && process.env.SKIP_NOTHING) throw new Error('redis-server is not installed');
if (!hasRedis) console.warn('skipped: what needs redis-server, which is not installed here');

export interface TestRedis {
  port: number;
  url: string;
  /** Ends it at once, as kill -9 does. */
  kill(): Promise<void>;
  start(...options: string[]): Promise<void>;
  configure(setting: string, value: string): Promise<void>;
  /** Removes all that it holds. */
  clear(): Promise<void>;
  pause(): void;
  resume(): void;
}

/** Starts a Redis on a free port of 127.0.0.1 that keeps nothing on disk, unless the options say otherwise. */
export async function startRedis(...given: string[]): Promise<TestRedis> {
  const port = await freePort();
  let child: ChildProcess;
  async function start(...options: string[]): Promise<void> {
    const settings = [
      '--port',
      String(port),
      '--bind',
      '127.0.0.1',
      '--save',
      '',
      '--appendonly',
      'no',
      // Not by a file, which other servers would load.
      '--repl-diskless-load',
      'swapdb',
      ...given,
      ...options,
    ];
    child = spawn('redis-server', settings, { stdio: 'ignore', cwd: '/tmp' });
    await isListening(port);
  }
  await start();
  return {
    port,
    url: `redis://127.0.0.1:${port}`,
    async kill() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const gone = once(child, 'exit');
      child.kill('SIGCONT');
      child.kill('SIGKILL');
      await gone;
    },
    start,
    async configure(setting, value) {
      const client = new Redis(port, '127.0.0.1');
      await client.config('SET', setting, value);
      client.disconnect();
    },
    async clear() {
      const client = new Redis(port, '127.0.0.1');
      await client.flushall();
      client.disconnect();
    },
    pause: () => child.kill('SIGSTOP'),
    resume: () => child.kill('SIGCONT'),
  };
}

/** Starts a sentinel that calls the primary `main` and, with `quorum` of them, replaces it after two seconds of silence. */
export async function startSentinel(primary: number, quorum: number, ...lines: string[]) {
  const folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-sentinel-'));
  const [port, file] = [await freePort(), join(folder, 'sentinel.conf')];
  const settings = [
    ...[`port ${port}`, 'bind 127.0.0.1', `dir ${folder}`, `sentinel monitor main 127.0.0.1 ${primary} ${quorum}`],
    ...['sentinel down-after-milliseconds main 2000', 'sentinel failover-timeout main 6000', ...lines],
  ];
  await writeFile(file, settings.join('\n'));
  const child = spawn('redis-server', [file, '--sentinel'], { stdio: 'ignore' });
  await isListening(port);
  return {
    port,
    async kill() {
      const gone = once(child, 'exit');
      child.kill('SIGKILL');
      await gone;
      await rm(folder, { recursive: true });
    },
  };
}
