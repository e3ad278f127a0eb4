/** A database cluster in a folder: its data, and how its server starts and stops, by PostgreSQL's own initdb and pg_ctl. */
import { randomBytes, randomInt } from 'node:crypto';
import { existsSync, statSync } from 'node:fs';
import { chown, mkdtemp, readdir, readFile, rename, rm, truncate, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Account, run } from './account.js';
import { messageOf, type Programs, unusable } from './programs.js';

const FAST_STOP_TIMEOUT_MS = 10_000;
/** PostgreSQL itself kills its children after 5 s. */
const IMMEDIATE_STOP_TIMEOUT_MS = 6_000;
const POLL_INTERVAL_MS = 20;
/** A larger log is emptied at the next start. */
const MAX_LOG_BYTES = 10 * 2 ** 20;
/** Names the Unix socket. Nothing listens on the TCP port, and no program but root's could: 1.0.0 would send it the password. */
const SOCKET_PORT = 1;
const SOCKET = `.s.PGSQL.${SOCKET_PORT}`;
/** The longest path of a Unix socket in bytes: sun_path without its final NUL. */
const MAX_SOCKET_PATH_BYTES = process.platform === 'darwin' ? 103 : 107;
/** Ports that are assigned to no program; if one is in use, another is tried. */
const PORTS = [49_152, 65_536] as const;

/** Another process was faster or has the port, or the children of a killed server have not ended yet. */
const PASSING_FAILURE = /postmaster\.pid|could not create any TCP|shared memory block .* still in use/;

/** All that is needed to start a server and connect to it. */
export interface Cluster {
  /** Holds `data`, `password`, `log` and the socket; only its owner may enter it. Programs run in it, as pg_ctl's shell would expand a `$` in a path. */
  home: string;
  log: string;
  programs: Programs;
  account: Account;
  password: string;
}

/** Makes the cluster of the folder `home`: in a draft, which is renamed when complete, so a kill -9 leaves no partial one. */
export async function initialize(home: string, { initdb }: Programs, account: Account, stop: AbortSignal) {
  const draft = await mkdtemp(draftOf(home)); // 0700
  const password = join(draft, 'password');
  try {
    await writeFile(password, `${randomBytes(24).toString('hex')}\n`, { mode: 0o600 });
    const { owner } = account;
    if (owner) for (const path of [password, draft]) await chown(path, owner.uid, owner.gid);
    const options = [
      ...['--pgdata=data', '--username=postgres', '--auth=scram-sha-256', '--pwfile=password'],
      // The same sort order on every machine.
      ...['--encoding=UTF8', '--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'],
      '--no-sync', // it holds no user data yet; the server syncs as usual
    ];
    await run(account, initdb, options, draft, stop);
    await rename(draft, home);
  } catch (error) {
    await rm(draft, { recursive: true, force: true });
    stop.throwIfAborted();
    if (existsSync(home)) return; // another process was faster
    throw unusable(`cannot be set up in ${home}:\n${lastLines(messageOf(error))}\nRepair what it names`, error);
  }
}

/** Removes the drafts beside a cluster, of processes that were killed or came second. */
export async function removeDrafts(home: string): Promise<void> {
  for (const name of await readdir(dirname(home))) {
    if (!name.startsWith(basename(draftOf(home)))) continue;
    await rm(join(dirname(home), name), { recursive: true, force: true }).catch(() => {}); // an orphaned initdb writes on
  }
}

const draftOf = (home: string) => `${home}.initdb-`;

/** Returns the address of a database of a server, which may not run yet. */
export type Server = (database: string) => string;

/**
 * Returns the server that listens on a Unix socket in the cluster's folder, so that no other user can take its place;
 * undefined if the path of the socket is too long, or on Windows, where Node has none.
 */
export function socketServer({ home, password }: Cluster): Server | undefined {
  const isUsable = process.platform !== 'win32' && Buffer.byteLength(join(home, SOCKET)) <= MAX_SOCKET_PATH_BYTES;
  if (!isUsable) return undefined;
  const host = encodeURIComponent(home);
  return (database) => `postgres://postgres:${password}@localhost:${SOCKET_PORT}/${database}?host=${host}`;
}

/** Returns the server that listens on a port of 127.0.0.1, if its process runs: after a crash, the port may be another user's. */
export async function tcpServer(cluster: Cluster): Promise<Server | undefined> {
  const { pid, port } = await lastPostmaster(cluster);
  if (!port || port === SOCKET_PORT || !isSent(0, pid)) return undefined;
  const authority = `postgres:${cluster.password}@127.0.0.1:${port}`;
  return (database) => `postgres://${authority}/${database}?require_auth=scram-sha-256`;
}

/** Returns what the lock file says: the running server, or the last one if it was killed. */
async function lastPostmaster({ home }: Cluster): Promise<{ pid: number; port: number }> {
  const [pid, , , port] = (await readFile(lockFileOf(home), 'utf8').catch(() => '')).split('\n');
  return { pid: Number(pid), port: Number(port) };
}

const lockFileOf = (home: string) => join(home, 'data', 'postmaster.pid');

/**
 * Starts the server, which is not taking connections, and waits until it is ready. Of several processes that try this,
 * PostgreSQL's lock file lets one through.
 *
 * @param stop ends it again if it is not ready yet; its reason is thrown
 * @returns what prevented the start, if it may be over soon; what has to be repaired is thrown
 */
export async function startServer(cluster: Cluster, stop: AbortSignal) {
  const { home, log, programs, account } = cluster;
  const size = () => statSync(log, { throwIfNoEntry: false })?.size ?? 0;
  if (size() > MAX_LOG_BYTES) await truncate(log); // not renamed: a server may be writing to it
  const begin = size();
  // The folder above `data`, in which the server runs.
  const onSocket = `-p ${SOCKET_PORT} -c listen_addresses= -c unix_socket_directories=.. -c unix_socket_permissions=0700`;
  const onPort = `-p ${randomInt(...PORTS)} -c listen_addresses=127.0.0.1 -c unix_socket_directories=`;
  const options = socketServer(cluster) ? onSocket : onPort;
  // postmaster.pid alone decides who may start; after a crash, this one could name a process that has nothing to do with it.
  await rm(join(home, `${SOCKET}.lock`), { force: true });
  try {
    await run(account, programs.pg_ctl, ['start', '--pgdata=data', '--log=log', `--options=${options}`], home, stop);
    return undefined;
  } catch (error) {
    stop.throwIfAborted();
    const logged = (await readFile(log).catch(() => Buffer.of())).subarray(begin).toString();
    const reasons = lastLines(logged || messageOf(error));
    // Not removed here: two containers with one volume would end in two servers on the same data.
    const remedy = reasons.includes('postmaster.pid')
      ? `If no PostgreSQL uses this folder, on another machine or in another container either, delete ${lockFileOf(home)}`
      : 'Repair what it names';
    const note = logged ? '' : ' It could not write into it: is there room on the disk?';
    const failure = unusable(`did not start:\n${reasons}\nIts log is ${log}.${note} ${remedy}`, error);
    if (PASSING_FAILURE.test(reasons)) return failure;
    throw failure;
  }
}

function lastLines(text: string): string {
  return text.trimEnd().split('\n').slice(-10).join('\n');
}

/**
 * Asks the server to end all sessions and stop (fast shutdown) and, if that takes too long, to stop at once (immediate
 * shutdown: it replays its log at the next start). Not with `pg_ctl stop`: if another process starts the server again
 * right away, it mistakes the new one for the old.
 *
 * @param hurry switches to the immediate shutdown
 */
export async function stopServer(cluster: Cluster, hurry: AbortSignal): Promise<void> {
  const { pid } = await lastPostmaster(cluster);
  // In a container without an init, the process stays as a zombie; after a kill -9, the lock file does.
  const isGone = async () => (await lastPostmaster(cluster)).pid !== pid || !isSent(0, pid);
  const stopBy = async (signal: NodeJS.Signals, timeoutMs: number, isLate = () => false) => {
    isSent(signal, pid);
    const deadline = Date.now() + timeoutMs;
    while (Date.now() < deadline && !isLate() && !(await isGone())) await sleep(POLL_INTERVAL_MS);
  };
  await stopBy('SIGINT', FAST_STOP_TIMEOUT_MS, () => hurry.aborted);
  if (!(await isGone())) await stopBy('SIGQUIT', IMMEDIATE_STOP_TIMEOUT_MS);
}

function isSent(signal: NodeJS.Signals | 0, pid: number): boolean {
  try {
    return pid > 0 && process.kill(pid, signal);
  } catch {
    return false; // it has ended
  }
}
