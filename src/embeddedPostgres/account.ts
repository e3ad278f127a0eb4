/** The user that PostgreSQL's programs run as: ours or, since PostgreSQL refuses to run as root, another one. */
import { execFile, spawn } from 'node:child_process';
import { addAbortListener, once } from 'node:events';
import { statSync } from 'node:fs';
import { dirname } from 'node:path';
import { promisify } from 'node:util';
import { messageOf, unusable } from './failure.js';
import type { Programs } from './programs.js';

export interface Account {
  environment: Record<string, string>;
  /** The user to whom root gives the data. */
  owner?: Ids;
  /** What makes a program run as the owner: options for spawning it, or a program that runs it. */
  ids?: Ids;
  prefix: string[];
}

interface Ids {
  uid: number;
  gid: number;
}

/** @throws Error whose message says that the data in `home` are another user's; root may use anybody's */
export function requireOwner(home: string): void {
  const self = process.getuid?.(); // undefined on Windows
  const found = statSync(home, { throwIfNoEntry: false });
  if (!self || !found || found.uid === self) return;
  throw unusable(`can only use ${home} as its owner, the user with the id ${found.uid}. Run this as that user`);
}

/**
 * The account for the data in `home`, which need not exist; its parent must.
 * @throws Error whose message says why no account can be used
 */
export async function accountFor(home: string, { postgres, environment }: Programs): Promise<Account> {
  if (process.getuid?.() !== 0) return { environment, prefix: [] };
  const { uid, gid } = statSync(home, { throwIfNoEntry: false }) ?? (await nobody());
  const owner = { uid, gid };
  const asOwner = { environment, owner, ids: owner, prefix: [] };
  // For when only root may enter a folder above the data or the programs, as with /root. CAP_DAC_OVERRIDE lets another user
  // in; `spawn` cannot give it. Without no_setuid_fixup, access(2) would ignore it.
  const capability = ['--inh-caps=+dac_override', '--ambient-caps=+dac_override', '--securebits=+no_setuid_fixup'];
  const prefix = ['setpriv', `--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', ...capability];
  const mayEnter = ['-c', 'test -x "$0" && test -x "$1"', postgres, dirname(home)];
  let obstacle: unknown;
  for (const account of [asOwner, { environment, owner, prefix }]) {
    try {
      await run(account, '/bin/sh', mayEnter, '/');
      return account;
    } catch (error) {
      obstacle = error;
    }
  }
  throw unusable(
    `can run neither as root nor as the user with the id ${uid} (${messageOf(obstacle)}). Run this as another user`,
  );
}

async function nobody(): Promise<Ids> {
  const [uid, gid] = await Promise.all(['-u', '-g'].map((option) => promisify(execFile)('id', [option, 'nobody'])));
  return { uid: Number(uid?.stdout), gid: Number(gid?.stdout) };
}

/**
 * Runs a program in the folder `cwd` to its end. It has its own process group, so that a Ctrl-C in the terminal
 * reaches only us.
 *
 * @param stop interrupts it (SIGINT); its reason becomes the error unless the program succeeds anyway
 * @throws Error with what the program wrote on standard error, in English
 */
export async function run(account: Account, program: string, args: string[], cwd: string, stop?: AbortSignal) {
  const { environment, ids, prefix } = account;
  const [file = program, ...rest] = [...prefix, program, ...args];
  const env = { ...process.env, ...environment, LC_ALL: 'C' };
  const child = spawn(file, rest, { ...ids, cwd, env, detached: true, stdio: ['ignore', 'ignore', 'pipe'] });
  let complaint = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (complaint += text));
  const listener = stop && addAbortListener(stop, () => child.kill('SIGINT'));
  const [code, signal] = await once(child, 'close').finally(() => listener?.[Symbol.dispose]());
  if (code === 0) return;
  stop?.throwIfAborted();
  throw new Error(complaint.trim() || `${program} ended with ${code ?? signal}`);
}
