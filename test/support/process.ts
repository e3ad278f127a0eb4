/** Child processes. */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';

/** Sends a signal to a process that still runs, even if it is paused, and waits until it has exited. */
export async function endProcess(child: ChildProcess | undefined, signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
  if (!child || child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill(signal);
  child.kill('SIGCONT');
  await exited;
}

/** Sends `signal` to the process when this one exits, so that a test that fails leaves nothing running. */
export function endWithThisProcess(child: ChildProcess, signal: NodeJS.Signals = 'SIGKILL'): void {
  const end = () => void child.kill(signal);
  process.once('exit', end);
  child.once('exit', () => process.off('exit', end));
}
