/** What the tests of deploy/ run beside the service: Debian's prometheus, and kubernetes-validate from PyPI. */
import { execFile, spawnSync } from 'node:child_process';
import { promisify } from 'node:util';

/** Made by Makefile.maintainers. */
export const KUBERNETES_VALIDATE = '.cache/deploy/bin/kubernetes-validate';

/** Whether the program is installed; with `SKIP_NOTHING` in the environment, it is an error if not. */
export function isInstalled(program: string): boolean {
  const isHere = spawnSync(program, [['haproxy', 'nginx'].includes(program) ? '-v' : '--version']).status === 0;
  if (!isHere && process.env.SKIP_NOTHING) throw new Error(`not installed: ${program}`);
  if (!isHere) console.warn(`skipped: what needs ${program}, which is not installed here`);
  return isHere;
}

/** Runs a program to its end: its exit status and all that it printed. */
export async function run(program: string, args: string[]): Promise<{ status: number; output: string }> {
  return promisify(execFile)(program, args).then(
    ({ stdout, stderr }) => ({ status: 0, output: stdout + stderr }),
    ({ code, stdout, stderr }) => ({ status: code, output: stdout + stderr }),
  );
}
