/** The account that PostgreSQL's programs run under: ourselves or, as PostgreSQL refuses root, another user. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { promisify } from 'node:util';
import { codeOf } from '../database/errors.js';
import { lastLines, messageOf, unusable } from './failure.js';
import type { Programs } from './programs.js';

const run = promisify(execFile);

/** For one program that ends by itself, such as initdb. */
const PROGRAM_TIMEOUT_MS = 60_000;

export interface Account {
  /** The command that changes the user, before the program and its arguments. */
  prefix: string[];
  ids: { uid?: number; gid?: number };
  environment: Record<string, string>;
  /** The user who must own the data, where that is not ourselves. */
  owner?: Owner;
}

interface Owner {
  uid: number;
  gid: number;
}

/**
 * Finds the first way of running PostgreSQL's programs that works here, and their major version.
 *
 * @param home the folder of the data, which need not exist; its parent must
 * @throws Error whose message says why none works
 */
export async function openAccount(
  { postgres: program, environment }: Programs,
  home: string,
): Promise<{ account: Account; major: string }> {
  const failures: string[] = [];
  for (const candidate of await possibleAccounts(home)) {
    const account: Account = { ...candidate, environment };
    // Tried in a shell, to see at once whether this account can enter the folder.
    const attempt = 'test -x "$0" && test -x "$1" || { echo "no access to $0 or $1" >&2; exit 1; }; "$0" --version';
    try {
      const { stdout } = await execute(account, '/bin/sh', ['-c', attempt, program, dirname(home)]);
      const major = /\(PostgreSQL\) (\d+)/.exec(stdout)?.[1];
      if (major) return { account, major };
    } catch (error) {
      failures.push(lastLines(messageOf(error), 1));
    }
  }
  throw unusable(`cannot be run:\n${failures.join('\n')}\n${adviceFor(failures)}`);
}

function adviceFor(failures: string[]): string {
  if (failures.some((reason) => reason.includes('shared librar'))) {
    return 'Install the library that it names, or delete node_modules and run npm install again';
  }
  return process.getuid?.() === 0 ? 'Run this as another user than root' : 'Repair what it names';
}

async function possibleAccounts(home: string): Promise<Omit<Account, 'environment'>[]> {
  const self = process.getuid?.();
  const found = await ownerOf(home);
  if (self !== 0) {
    if (!found || found.uid === self) return [{ prefix: [], ids: {} }];
    throw unusable(`can only use ${home} as its owner, the user with the id ${found.uid}. Run this as that user`);
  }
  const owner = found?.uid ? found : await nobody();
  const { uid, gid } = owner;
  // Root may have put the checkout where other users have no access. CAP_DAC_OVERRIDE gives it to them; without
  // no_setuid_fixup, access(2) would ignore it.
  const capable = ['--inh-caps=+dac_override', '--ambient-caps=+dac_override', '--securebits=+no_setuid_fixup'];
  const asOwner = [
    { prefix: [], ids: { uid, gid }, owner },
    { prefix: ['setpriv', `--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', ...capable], ids: {}, owner },
  ];
  // Where root is not allowed to become another user, it can still look like one; the files remain root's.
  const lookingLikeOwner = { prefix: ['unshare', '--user', `--map-user=${uid}`, `--map-group=${gid}`], ids: {} };
  if (!found) return [...asOwner, lookingLikeOwner];
  return found.uid === 0 ? [lookingLikeOwner] : asOwner;
}

async function nobody(): Promise<Owner> {
  const [uid, gid] = await Promise.all([run('id', ['-u', 'nobody']), run('id', ['-g', 'nobody'])]);
  return { uid: Number(uid.stdout), gid: Number(gid.stdout) };
}

async function ownerOf(path: string): Promise<Owner | undefined> {
  try {
    const { uid, gid } = await stat(path);
    return { uid, gid };
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

/**
 * Runs a program to its end. It has a process group of its own, so that a Ctrl-C in the terminal reaches only us, and
 * `stop` ends it with all its children.
 *
 * @throws Error with what the program wrote on standard error
 */
export async function execute(
  account: Account,
  program: string,
  args: string[],
  stop?: AbortSignal,
): Promise<{ stdout: string }> {
  const { file, args: rest, options } = commandOf(account, program, args);
  const child = spawn(file, rest, { ...options, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
  const output = { stdout: '', stderr: '' };
  for (const stream of ['stdout', 'stderr'] as const) {
    child[stream].setEncoding('utf8').on('data', (text: string) => (output[stream] += text));
  }
  const end = () => child.exitCode ?? child.signalCode ?? killGroup(child.pid);
  const timeout = setTimeout(end, PROGRAM_TIMEOUT_MS);
  stop?.addEventListener('abort', end);
  if (stop?.aborted) end();
  try {
    const [code, signal] = await once(child, 'close');
    stop?.throwIfAborted();
    if (code !== 0) throw new Error(output.stderr.trim() || `${program} ended with ${code ?? signal}`);
    return output;
  } finally {
    clearTimeout(timeout);
    stop?.removeEventListener('abort', end);
  }
}

function killGroup(pid: number | undefined): void {
  try {
    if (pid) process.kill(-pid, 'SIGKILL');
  } catch {
    // it has just ended
  }
}

/** What to spawn: English messages, which we read, and a working folder that every user may enter. */
export function commandOf({ prefix, ids, environment }: Account, program: string, args: string[]) {
  const [file = program, ...rest] = [...prefix, program, ...args];
  return { file, args: rest, options: { ...ids, cwd: '/', env: { ...process.env, ...environment, LC_ALL: 'C' } } };
}
