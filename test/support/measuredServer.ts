/** Servers to be measured, each in its own process. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from './port.js';

export interface Server {
  url: string;
  pid: number;
  stop(): Promise<void>;
}

/** A bench that fails leaves nothing behind. */
const running = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of running) child.kill();
});

/** Starts `node …command` on a free port and waits until `path` responds. */
export async function startServer(
  command: string[],
  path: string,
  environment: Record<string, string>,
): Promise<Server> {
  const port = await freePort();
  const child = spawn(process.execPath, command, {
    env: { ...process.env, ...environment, PORT: String(port), NODE_ENV: 'production' },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  running.add(child);
  const url = `http://127.0.0.1:${port}`;
  for (let tries = 0; tries < 150; tries++) {
    const response = await fetch(url + path).catch(() => undefined);
    await response?.arrayBuffer();
    if (response?.ok) return { url, pid: child.pid ?? 0, stop: () => stop(child) };
    if (child.exitCode !== null) break;
    await sleep(200);
  }
  await stop(child);
  throw new Error(`${command.join(' ')} does not respond ${path}`);
}

async function stop(child: ChildProcess): Promise<void> {
  running.delete(child);
  if (child.exitCode !== null) return;
  child.kill('SIGTERM');
  await Promise.race([once(child, 'exit'), sleep(5000)]);
  if (child.exitCode === null) child.kill('SIGKILL');
}
