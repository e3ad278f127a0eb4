/** Programs that tests run, some of which may not be installed, such as Debian's prometheus. */
import { execFile, spawnSync } from 'node:child_process';
import { promisify } from 'node:util';

/** Makefile.maintainers installs it from PyPI. */
export const KUBERNETES_VALIDATE = '.cache/deploy/bin/kubernetes-validate';

/** Returns whether a program is installed; throws if it is not and `SKIP_NOTHING` is set. */
export function isInstalled(program: string): boolean {
  const isHere = spawnSync(program, ['--version'], { stdio: 'ignore' }).error === undefined;
  if (!isHere && process.env.SKIP_NOTHING) throw new Error(`not installed: ${program}`);
  if (!isHere) console.warn(`skipping tests: ${program} is not installed`);
  return isHere;
}

/** Runs a program; throws if it fails. */
export const run = promisify(execFile);

/** Runs a program, and returns its exit status and its output. */
export async function outcomeOf(program: string, args: string[]): Promise<{ status: number; output: string }> {
  return run(program, args).then(
    ({ stdout, stderr }) => ({ status: 0, output: stdout + stderr }),
    ({ code, stdout, stderr }) => ({ status: code, output: stdout + stderr }),
  );
}
