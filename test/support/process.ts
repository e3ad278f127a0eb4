/** Child processes. */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, readlink } from 'node:fs/promises';

/** Sends a signal to a process that still runs, even if it is paused, and waits until it has exited. */
export async function endProcess(child: ChildProcess | undefined, signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
  if (!child || child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill(signal);
  child.kill('SIGCONT');
  await exited;
}

/** Sends a signal to a process, or to the group of a negative id, unless it has ended. */
export function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Sends `signal` to the process when this one exits, so that a test that fails leaves nothing running. */
export function endWithThisProcess(child: ChildProcess, signal: NodeJS.Signals = 'SIGKILL'): void {
  const end = () => void child.kill(signal);
  process.once('exit', end);
  child.once('exit', () => process.off('exit', end));
}

/** Returns the ids of the processes with this folder as their working folder or in their command line. */
export async function processesIn(folder: string): Promise<number[]> {
  const ids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
  const isInside = await Promise.all(
    ids.map(async (id) => {
      const cwd = await readlink(`/proc/${id}/cwd`).catch(() => '');
      const command = await readFile(`/proc/${id}/cmdline`, 'utf8').catch(() => '');
      return cwd.startsWith(folder) || command.includes(folder);
    }),
  );
  return ids.filter((_id, index) => isInside[index]);
}

/** Returns the environment without the settings of the npm that runs this test. */
export function withoutNpm(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name)));
}
