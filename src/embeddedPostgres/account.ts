/** The user that PostgreSQL's programs run as: ours or, since PostgreSQL refuses to run as root, another one. */
import { spawn } from 'node:child_process';
import { addAbortListener, once } from 'node:events';
import { statSync } from 'node:fs';
import { dirname } from 'node:path';
import { type Programs, unusable } from './programs.js';

export interface Account {
  environment: Record<string, string>;
  /** The user to whom root gives the data, and as whom programs run. */
  owner?: { uid: number; gid: number };
  /** A program that runs others as the owner, unless `spawn` can do so. */
  prefix: string[];
}

/** Linux's user who owns nothing else. */
const NOBODY = { uid: 65_534, gid: 65_534 };

/** @throws Error whose message says that the data in `home` are another user's; root may use anybody's */
export function requireOwner(home: string): void {
  const self = process.getuid?.(); // undefined on Windows
  const found = statSync(home, { throwIfNoEntry: false });
  if (!self || !found || found.uid === self) return;
  throw unusable(`can only use ${home} as its owner, the user with the id ${found.uid}. Run this as that user`);
}

/** The account for the data in `home`, which need not exist; its parent must. */
export async function accountFor(home: string, { postgres, environment }: Programs): Promise<Account> {
  if (process.getuid?.() !== 0) return { environment, prefix: [] };
  const { uid, gid } = statSync(home, { throwIfNoEntry: false }) ?? NOBODY;
  const account = { environment, owner: { uid, gid }, prefix: [] };
  const mayEnter = ['-c', 'test -x "$0" && test -x "$1"', postgres, dirname(home)];
  const isOpen = await run(account, '/bin/sh', mayEnter, '/').then(
    () => true,
    () => false,
  );
  if (isOpen) return account;
  // Only root may enter a folder above the data or the programs, as with /root. CAP_DAC_OVERRIDE lets another user in;
  // `spawn` cannot give it. Without no_setuid_fixup, access(2) would ignore it.
  const capability = ['--inh-caps=+dac_override', '--ambient-caps=+dac_override', '--securebits=+no_setuid_fixup'];
  return { ...account, prefix: ['setpriv', `--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', ...capability] };
}

/**
 * Runs a program in the folder `cwd` to its end, in a process group of its own: a Ctrl-C in the terminal reaches only us.
 * @param stop interrupts it (SIGINT); its reason becomes the error unless the program succeeds anyway
 * @throws Error with what the program wrote on standard error, in English
 */
export async function run(account: Account, program: string, args: string[], cwd: string, stop?: AbortSignal) {
  const { environment, owner, prefix } = account;
  const [file = program, ...rest] = [...prefix, program, ...args];
  const env = { ...process.env, ...environment, LC_ALL: 'C' };
  const user = prefix.length > 0 ? {} : owner;
  const child = spawn(file, rest, { ...user, cwd, env, detached: true, stdio: ['ignore', 'ignore', 'pipe'] });
  let complaint = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (complaint += text));
  const listener = stop && addAbortListener(stop, () => child.kill('SIGINT'));
  const [code, signal] = await once(child, 'close').finally(() => listener?.[Symbol.dispose]());
  if (code === 0) return;
  stop?.throwIfAborted();
  throw new Error(complaint.trim() || `${program} ended with ${code ?? signal}`);
}
