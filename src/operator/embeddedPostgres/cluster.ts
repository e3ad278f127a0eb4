/** A database cluster in a folder: creates it with initdb, starts its server with pg_ctl, and stops it. */
import { randomBytes } from 'node:crypto';
import { existsSync, statSync } from 'node:fs';
import { chown, mkdtemp, readdir, readFile, rename, rm, truncate, writeFile } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Programs, run, unusable } from './programs.js';

const FAST_STOP_TIMEOUT_MS = 10_000;
/** PostgreSQL kills its children after 5 s. */
const IMMEDIATE_STOP_TIMEOUT_MS = 6_000;
const POLL_INTERVAL_MS = 20;
/** The size in bytes above which the log is emptied at the next start. */
const MAX_LOG_BYTES = 10 * 2 ** 20;
/**
 * The port in the socket's name. Version 1.0.0 would send the password to the TCP port with this number, so it is a
 * port on which only root can listen.
 */
const SOCKET_PORT = 1;
const SOCKET = `.s.PGSQL.${SOCKET_PORT}`;
/** The longest path of a Unix socket in bytes: sun_path without its final NUL. */
const MAX_SOCKET_PATH_BYTES = process.platform === 'darwin' ? 103 : 107;

/** Matches failures that a retry may solve: another process was faster, or children of a killed server are running. */
const TRANSIENT_FAILURE = /postmaster\.pid|shared memory block .* still in use/;

export interface Cluster {
  /**
   * The folder of `data`, `password`, `log` and the socket, which only its owner can enter. Programs run in it and get
   * relative paths, because pg_ctl's shell would expand a `$`.
   */
  home: string;
  log: string;
  programs: Programs;
  password: string;
}

/** Creates a cluster in `home`, by renaming a complete draft, so that a kill -9 leaves no partial cluster. */
export async function initialize(home: string, programs: Programs, stop: AbortSignal) {
  const draft = await mkdtemp(draftOf(home)); // 0700
  const password = join(draft, 'password');
  try {
    await writeFile(password, `${randomBytes(24).toString('hex')}\n`, { mode: 0o600 });
    const { owner, initdb } = programs;
    if (owner) for (const path of [password, draft]) await chown(path, owner.uid, owner.gid);
    const options = [
      ...['--pgdata=data', '--username=postgres', '--auth=scram-sha-256', '--pwfile=password'],
      // For the same sort order on every machine.
      ...['--encoding=UTF8', '--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'],
      '--no-sync', // there is no user data yet; the server syncs as usual
    ];
    await run(programs, initdb, options, draft, stop);
    await rename(draft, home);
  } catch (error) {
    await rm(draft, { recursive: true, force: true });
    stop.throwIfAborted();
    if (existsSync(home)) return; // another process was faster
    throw unusable(`cannot be set up in ${home}:\n${lastLines((error as Error).message)}\nRepair what it names`, error);
  }
}

/** Removes drafts that killed or slower processes left next to a cluster. */
export async function removeDrafts(home: string): Promise<void> {
  for (const name of await readdir(dirname(home))) {
    if (!name.startsWith(basename(draftOf(home)))) continue;
    await rm(join(dirname(home), name), { recursive: true, force: true }).catch(() => {}); // an orphaned initdb may still write
  }
}

const draftOf = (home: string) => `${home}.initdb-`;

/**
 * Returns the URL of a database on the server's socket, where no other user can impersonate the server. If the path of the
 * socket is too long, the URL has the path from this process's folder.
 */
export function urlOf({ home, password }: Cluster, database: string): string {
  const isShort = Buffer.byteLength(join(home, SOCKET)) <= MAX_SOCKET_PATH_BYTES;
  const host = encodeURIComponent(isShort ? home : `./${relative('', home)}`);
  return `postgres://postgres:${password}@localhost:${SOCKET_PORT}/${database}?host=${host}`;
}

const lockFileOf = (home: string) => join(home, 'data', 'postmaster.pid');

/**
 * Starts the server, and waits until it is ready. If several processes try this, PostgreSQL's lock file lets one succeed.
 * @param stop stops the server if it is not ready yet; its reason is thrown
 * @returns undefined, or the failure if it may pass soon
 * @throws {UserError} for any other failure
 */
export async function startServer(cluster: Cluster, stop: AbortSignal) {
  const { home, log, programs } = cluster;
  const size = () => statSync(log, { throwIfNoEntry: false })?.size ?? 0;
  if (size() > MAX_LOG_BYTES) await truncate(log); // not renamed: a server may be writing to it
  const logStart = size();
  // Relative to `data`, in which the server runs.
  const options = `-p ${SOCKET_PORT} -c listen_addresses= -c unix_socket_directories=..`;
  // After a crash, the socket's lock file may name an unrelated process and prevent the start; postmaster.pid suffices.
  await rm(join(home, `${SOCKET}.lock`), { force: true });
  try {
    await run(programs, programs.pg_ctl, ['start', '--pgdata=data', '--log=log', `--options=${options}`], home, stop);
    return undefined;
  } catch (error) {
    stop.throwIfAborted();
    const logged = (await readFile(log).catch(() => Buffer.of())).subarray(logStart).toString();
    const reasons = lastLines(logged || (error as Error).message);
    // Not removed automatically: containers that share a volume would run two servers on the same data.
    const remedy = reasons.includes('postmaster.pid')
      ? `Stop the service or command of another version or container that uses this folder, and its PostgreSQL. If there is none, on another machine either, delete ${lockFileOf(home)}`
      : 'Repair what it names';
    const note = logged ? '' : ' Nothing was written to it: is the disk full?';
    const failure = unusable(`did not start:\n${reasons}\nIts log is ${log}.${note} ${remedy}`, error);
    if (TRANSIENT_FAILURE.test(reasons)) return failure;
    throw failure;
  }
}

function lastLines(text: string): string {
  return text.trimEnd().split('\n').slice(-10).join('\n');
}

/**
 * Stops the server by a fast shutdown, or, if that takes too long, by an immediate one, after which the next start replays its
 * log. Does not use `pg_ctl stop`, which mistakes a server that another process starts right away for the old one.
 * @param pid the server's process, which the lock file may not name if the folder was moved or deleted
 * @param hurry switches to the immediate shutdown
 */
export async function stopServer({ home }: Cluster, pid: number, hurry: AbortSignal): Promise<void> {
  const readLockFile = () => readFile(lockFileOf(home), 'utf8').catch(() => '');
  const isNamed = async () => Number.parseInt(await readLockFile(), 10) === pid;
  const wasNamed = await isNamed();
  // Checks both: in a container without init, a zombie process remains; after a kill -9, the lock file does.
  const isGone = async () => !sendSignal(0, pid) || (wasNamed && !(await isNamed()));
  const stopBy = async (signal: NodeJS.Signals, timeoutMs: number, abort?: AbortSignal) => {
    sendSignal(signal, pid);
    const deadline = Date.now() + timeoutMs;
    while (Date.now() < deadline && !abort?.aborted && !(await isGone())) await sleep(POLL_INTERVAL_MS);
  };
  await stopBy('SIGINT', FAST_STOP_TIMEOUT_MS, hurry);
  if (!(await isGone())) await stopBy('SIGQUIT', IMMEDIATE_STOP_TIMEOUT_MS);
}

/** Sends a signal (0: none) to a process. Returns whether the process exists. */
function sendSignal(signal: NodeJS.Signals | 0, pid: number): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    return false; // it has ended
  }
}
