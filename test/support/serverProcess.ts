/** Servers as processes of Node: the built service, and those that it is compared with. */
import { type ChildProcess, spawn } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from './port.js';
import { endProcess, endWithThisProcess } from './process.js';
import { until } from './until.js';

export interface Server {
  url: string;
  child: ChildProcess;
  stop(): Promise<void>;
}

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
  endWithThisProcess(child, 'SIGTERM');
  const url = `http://127.0.0.1:${port}`;
  const isReady = async () => {
    const response = await fetch(url + path).catch(() => undefined);
    await response?.arrayBuffer();
    return response?.ok || child.exitCode !== null;
  };
  const stop = async () => {
    await Promise.race([endProcess(child, 'SIGTERM'), sleep(5000)]);
    await endProcess(child);
  };
  await until(isReady, `${command.join(' ')} responds at ${path}`, 30_000).catch(async (error) => {
    await stop();
    throw error;
  });
  if (child.exitCode !== null) throw new Error(`${command.join(' ')} exited with ${child.exitCode}`);
  return { url, child, stop };
}
