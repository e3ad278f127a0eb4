/**
 * The user that PostgreSQL's programs run as: the current one, or another instead of root, which PostgreSQL rejects.
 */
import { spawn } from 'node:child_process';
import { addAbortListener, once } from 'node:events';
import { statSync } from 'node:fs';
import { dirname } from 'node:path';
import { type Programs, unusable } from './programs.js';

export interface Account {
  environment: Record<string, string>;
  /** The user that owns the data and runs the programs, if we are root. */
  owner?: { uid: number; gid: number };
  /** The command and arguments that run a program as the owner, if `spawn` can't; else empty. */
  prefix: string[];
}

/** The user `nobody` of Linux. */
const NOBODY = { uid: 65_534, gid: 65_534 };

/** @throws {UserError} if another user owns the data in `home`, unless we are root */
export function requireOwner(home: string): void {
  const self = process.getuid?.(); // undefined on Windows
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
  // A folder above the data or the programs, such as /root, is closed to other users. CAP_DAC_OVERRIDE opens it, which
  // `spawn` cannot grant. Without no_setuid_fixup, access(2) would ignore it.
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
  let errorOutput = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (errorOutput += text));
  const listener = stop && addAbortListener(stop, () => child.kill('SIGINT'));
  const [code, signal] = await once(child, 'close').finally(() => listener?.[Symbol.dispose]());
  if (code === 0) return;
  stop?.throwIfAborted();
  throw new Error(errorOutput.trim() || `${program} ended with ${code ?? signal}`);
}
