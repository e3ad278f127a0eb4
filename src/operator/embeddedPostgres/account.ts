/**
 * The user that runs PostgreSQL's programs: the current user, or a different one if that is root, which PostgreSQL
 * rejects.
 */
import { spawn } from 'node:child_process';
import { addAbortListener, once } from 'node:events';
import { statSync } from 'node:fs';
import { dirname } from 'node:path';
import { type Programs, unusable } from './programs.js';

export interface Account {
  environment: Record<string, string>;
  /** Set if we are root: the user that owns the data and runs the programs. */
  owner?: { uid: number; gid: number };
  /** If `spawn` can't run a program as the owner: the command that can, with its arguments. Otherwise empty. */
  prefix: string[];
}

/** The user `nobody` of Linux. */
const NOBODY = { uid: 65_534, gid: 65_534 };

/** Throws a UserError if another user owns the data in `home`, unless we are root. */
export function requireOwner(home: string): void {
  const self = process.getuid?.();
  const stats = statSync(home, { throwIfNoEntry: false });
  if (!self || !stats || stats.uid === self) return;
  throw unusable(`can only use ${home} as its owner, the user with the id ${stats.uid}. Run this as that user`);
}

/** Returns the account for the data in `home`, whose parent folder must exist. */
export async function accountFor(home: string, { postgres, environment }: Programs): Promise<Account> {
  if (process.getuid?.() !== 0) return { environment, prefix: [] };
  const { uid, gid } = statSync(home, { throwIfNoEntry: false }) ?? NOBODY;
  const account = { environment, owner: { uid, gid }, prefix: [] };
  const testAccess = ['-c', 'test -x "$0" && test -x "$1"', postgres, dirname(home)];
  const hasAccess = await run(account, '/bin/sh', testAccess, '/').then(
    () => true,
    () => false,
  );
  if (hasAccess) return account;
  // The owner can't enter a parent folder, such as /root. The capability CAP_DAC_OVERRIDE permits that, but `spawn`
  // can't grant it. Without no_setuid_fixup, access(2) would ignore the capability.
  const capability = ['--inh-caps=+dac_override', '--ambient-caps=+dac_override', '--securebits=+no_setuid_fixup'];
  return { ...account, prefix: ['setpriv', `--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', ...capability] };
}

/**
 * Runs a program in the folder `cwd`, in a new process group, so that Ctrl-C in the terminal does not reach it.
 * Resolves when it has ended.
 * @param stop interrupts the program (SIGINT); its reason is thrown unless the program succeeds anyway
 * @throws Error with the program's standard error, in English
 */
export async function run(account: Account, program: string, args: string[], cwd: string, stop?: AbortSignal) {
  const { environment, owner, prefix } = account;
  const [file = program, ...rest] = [...prefix, program, ...args];
  const env = { ...process.env, ...environment, LC_ALL: 'C' };
  const user = prefix.length > 0 ? {} : owner;
  const child = spawn(file, rest, { ...user, cwd, env, detached: true, stdio: ['ignore', 'ignore', 'pipe'] });
  // At once, since it also listens for the error of a program that could not be started.
  const closed = once(child, 'close');
  let errorOutput = '';
  // There is none if no file can be opened.
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (errorOutput += text));
  const listener = stop && addAbortListener(stop, () => child.kill('SIGINT'));
  const [code, signal] = await closed.finally(() => listener?.[Symbol.dispose]());
  if (code === 0) return;
  stop?.throwIfAborted();
  throw new Error(errorOutput.trim() || `${program} ended with ${code ?? signal}`);
}
