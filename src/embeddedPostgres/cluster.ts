/** A database cluster in a folder: its data, and how its server starts and stops, by PostgreSQL's own initdb and pg_ctl. */
import { randomBytes, randomInt } from 'node:crypto';
import { statSync } from 'node:fs';
import { chown, mkdtemp, readdir, readFile, rename, rm, truncate, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Account, run } from './account.js';
import { lastLines, messageOf, unusable } from './failure.js';
import type { Programs } from './programs.js';

/** After a kill -9 PostgreSQL first replays its log, which takes seconds, not minutes. */
export const POLL_INTERVAL_MS = 20;
export const START_TIMEOUT_SECONDS = 60;
const FAST_STOP_TIMEOUT_MS = 10_000;
/** PostgreSQL itself kills its children after 5 s. */
const IMMEDIATE_STOP_TIMEOUT_MS = 6_000;
/** A larger log is emptied at the next start. */
const MAX_LOG_BYTES = 10 * 2 ** 20;
/** Ports that are assigned to no program; if one is in use, another is tried. */
const PORTS = [49_152, 65_536] as const;
/** A server takes connections long before its lock file is this old. */
const MAX_SILENT_START_MS = 5_000;

const LOCKED = /postmaster\.pid" (?:already exists|is empty)/;
/** Another process was faster or has the port, the children of a killed server have not ended yet, or the log is long. */
const PASSING_FAILURE = /could not create any TCP|shared memory block .* still in use|did not start in time/;

/** All that is needed to start a server and connect to it. */
export interface Cluster {
  /** Holds `data`, `password` and `log`. Programs run in it, as pg_ctl's shell would expand a `$` in a path. */
  home: string;
  programs: Programs;
  account: Account;
  password: string;
}

/** Whether there is a cluster in the folder `home`; {@link initialize} makes it in one step. */
export function hasData(home: string): boolean {
  return statSync(home, { throwIfNoEntry: false }) !== undefined;
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
      ...['--set=max_connections=100', '--set=shared_buffers=128MB'],
      '--no-sync', // it holds no user data yet; the server syncs as usual
    ];
    await run(account, initdb, options, draft, stop);
    await rename(draft, home);
  } catch (error) {
    await rm(draft, { recursive: true, force: true });
    stop.throwIfAborted();
    if (hasData(home)) return; // another process was faster
    throw unusable(`cannot be set up in ${home}:\n${lastLines(messageOf(error), 10)}\nRepair what it names`, error);
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

/** The running server, or the last one if it was killed, according to its lock file. */
export async function lastPostmaster({ home }: Cluster): Promise<{ pid: number; port: number }> {
  const [pid, , , port] = (await readFile(lockFileOf(home), 'utf8').catch(() => '')).split('\n');
  return { pid: Number(pid), port: Number(port) };
}

const lockFileOf = (home: string) => join(home, 'data', 'postmaster.pid');

/**
 * Starts the server, which is not taking connections, and waits until it is ready. Of several processes that try this,
 * PostgreSQL's lock file lets one through.
 *
 * @param stop ends it again if it is not ready yet
 * @returns why it did not start, if it is worth trying again
 */
export async function startServer(cluster: Cluster, stop: AbortSignal): Promise<string | undefined> {
  const log = join(cluster.home, 'log');
  if (logSize(cluster) > MAX_LOG_BYTES) await truncate(log); // not renamed: a server may be writing to it
  const begin = logSize(cluster);
  const options = `-p ${randomInt(...PORTS)} -c listen_addresses=127.0.0.1 -c unix_socket_directories=`;
  try {
    const args = ['start', '--pgdata=data', '--log=log', `--timeout=${START_TIMEOUT_SECONDS}`, `--options=${options}`];
    await run(cluster.account, cluster.programs.pg_ctl, args, cluster.home, stop);
    return undefined;
  } catch (error) {
    stop.throwIfAborted();
    const reasons = lastLines((await logSince(cluster, begin)) || messageOf(error), 10);
    if (LOCKED.test(reasons)) await removeStaleLock(cluster);
    else if (!PASSING_FAILURE.test(reasons + messageOf(error))) {
      throw unusable(`did not start:\n${reasons}\nIts log is ${log}. Repair what it names`, error);
    }
    return reasons;
  }
}

/** After a restart of the machine or container, the process that the lock file names can be any program. */
async function removeStaleLock({ home }: Cluster): Promise<void> {
  const lockFile = statSync(lockFileOf(home), { throwIfNoEntry: false });
  if (lockFile && Math.abs(Date.now() - lockFile.mtimeMs) > MAX_SILENT_START_MS) await rm(lockFileOf(home));
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
  const isStoppedBy = async (signal: NodeJS.Signals, timeoutMs: number, isLate = () => false) => {
    const deadline = Date.now() + timeoutMs;
    for (let next: NodeJS.Signals | 0 = signal; Date.now() < deadline && !isLate(); next = 0) {
      if ((await lastPostmaster(cluster)).pid !== pid || !isSent(next, pid)) return true;
      await sleep(POLL_INTERVAL_MS);
    }
    return false;
  };
  if (await isStoppedBy('SIGINT', FAST_STOP_TIMEOUT_MS, () => hurry.aborted)) return;
  await isStoppedBy('SIGQUIT', IMMEDIATE_STOP_TIMEOUT_MS);
}

function isSent(signal: NodeJS.Signals | 0, pid: number): boolean {
  try {
    return pid > 0 && process.kill(pid, signal);
  } catch {
    return false; // it has ended
  }
}

/** The size of the log in bytes, as a mark for {@link panicSince}. */
export function logSize({ home }: Cluster): number {
  return statSync(join(home, 'log'), { throwIfNoEntry: false })?.size ?? 0;
}

async function logSince({ home }: Cluster, begin: number): Promise<string> {
  const log = await readFile(join(home, 'log')).catch(() => Buffer.of());
  return log.subarray(begin).toString();
}

/** Why the server has panicked since its log had `begin` bytes, as it does when a full disk takes no more of its WAL. */
export async function panicSince(cluster: Cluster, begin: number): Promise<string | undefined> {
  const lines = (await logSince(cluster, begin)).split('\n');
  const line = lines.findLast((each) => each.includes('PANIC:  '));
  return line && `${line.slice(line.indexOf('PANIC'))}. Its log is ${join(cluster.home, 'log')}`;
}
