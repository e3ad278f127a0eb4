/** The server itself: its data, its start and its stop. */
import { execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chown, mkdir, mkdtemp, open, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { basename, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { codeOf } from '../database/errors.js';
import { type Account, commandOf, execute } from './account.js';
import { lastLines, messageOf, unusable } from './failure.js';
import type { Programs } from './programs.js';

export const POLL_INTERVAL_MS = 20;
const FAST_STOP_TIMEOUT_MS = 10_000;
/** PostgreSQL itself kills its children after 5 s. */
const IMMEDIATE_STOP_TIMEOUT_MS = 6_000;
/** A larger log is emptied at the next start. */
const MAX_LOG_BYTES = 10 * 2 ** 20;

/** Another process was quicker, took the port, or has not quite died yet: trying again helps. */
const PASSING_FAILURE = /postmaster\.pid" already exists|Address already in use|shared memory block .* still in use/;

/** What PostgreSQL answers while it starts, stops or recovers: not the reason for it. */
const PASSING_REFUSAL = /the database system is|terminating connection/;

/** All that is needed to start a server and connect to it. */
export interface Cluster {
  programs: Programs;
  account: Account;
  data: string;
  log: string;
  password: string;
}

interface Postmaster {
  pid: number;
  port: number;
  ready: boolean;
}

/** Whether the folder `home` holds a cluster; it is there as a whole or not at all. */
export async function hasData(home: string): Promise<boolean> {
  try {
    await stat(home);
    return true;
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return false;
    throw error;
  }
}

/** The cluster in the folder `home`, which programs of the version `major` can read. */
export async function openCluster(home: string, programs: Programs, account: Account, major: string): Promise<Cluster> {
  const data = join(home, 'data');
  const madeBy = (await readFile(join(data, 'PG_VERSION'), 'utf8')).trim();
  if (madeBy !== major) {
    throw unusable(
      `is version ${major}, but ${data} was made by version ${madeBy}, which it cannot read. Move ${home} away to ` +
        'begin with an empty one, or install the version that made it',
    );
  }
  const password = (await readFile(join(home, 'password'), 'utf8')).trim();
  return { programs, account, data, log: join(home, 'log'), password };
}

/** Makes the cluster of the folder `home`: aside, and renamed when complete, so that no interruption leaves half of it. */
export async function initialize(
  home: string,
  { initdb }: Programs,
  account: Account,
  stop?: AbortSignal,
): Promise<void> {
  const draft = await mkdtemp(`${home}.${process.pid}.`); // 0700
  const data = join(draft, 'data');
  const password = join(draft, 'password');
  try {
    await mkdir(data, { mode: 0o700 });
    await writeFile(password, `${randomBytes(24).toString('hex')}\n`, { mode: 0o600 });
    if (account.owner) {
      for (const path of [password, data, draft]) await chown(path, account.owner.uid, account.owner.gid);
    }
    const options = [
      ...['--pgdata', data, '--username=postgres', '--auth=scram-sha-256', '--pwfile', password],
      // The same order of strings on every machine.
      ...['--encoding=UTF8', '--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'],
      ...['--set=max_connections=100', '--set=shared_buffers=128MB'],
      '--no-sync', // nothing of the user's is in there yet; the server itself syncs as usual
    ];
    await execute(account, initdb, options, stop).catch((error: unknown) => {
      stop?.throwIfAborted();
      throw unusable(`cannot be set up in ${home}:\n${lastLines(messageOf(error), 10)}\nRepair what it names`, error);
    });
    await rename(draft, home);
  } catch (error) {
    await rm(draft, { recursive: true, force: true });
    const anotherWasQuicker = ['ENOTEMPTY', 'EEXIST'].includes(codeOf(error));
    if (!anotherWasQuicker) throw error;
  }
}

/** Removes what the interrupted initializations of dead processes have left. */
export async function removeAbandoned(home: string): Promise<void> {
  for (const name of await readdir(dirname(home))) {
    const [, pid] = /^\.(\d+)\.\w{6}$/.exec(name.slice(basename(home).length)) ?? [];
    if (!pid || !name.startsWith(basename(home)) || isAlive(Number(pid))) continue;
    await rm(join(dirname(home), name), { recursive: true, force: true }).catch(() => {}); // an orphaned initdb writes on
  }
}

/**
 * Starts PostgreSQL and waits until it is ready.
 *
 * @param stop ends it again unless it is ready
 * @returns why it did not start, if it can be worth trying again; undefined once it is ready
 */
export async function startPostmaster(
  { programs, account, data, log }: Cluster,
  deadline: number,
  stop: AbortSignal,
): Promise<string | undefined> {
  const output = await open(log, 'a', 0o600);
  try {
    if (account.owner) await output.chown(account.owner.uid, account.owner.gid);
    let { size } = await output.stat();
    if (size > MAX_LOG_BYTES) {
      // Not renamed: a PostgreSQL that another process is just starting goes on writing to this very file, at its end.
      await output.truncate();
      size = 0;
    }
    let end: string | undefined;
    const { file, args, options } = commandOf(account, programs.postgres, [
      ...['-D', data, '-p', String(await freePort())],
      ...['-c', 'listen_addresses=127.0.0.1', '-c', 'unix_socket_directories='],
    ]);
    const postmaster = spawn(file, args, {
      ...options,
      detached: true, // its own session: Ctrl-C in a terminal is for us, and we then shut it down cleanly
      stdio: ['ignore', output.fd, output.fd],
    });
    postmaster.once('error', (error) => (end = error.message));
    postmaster.once('exit', (code, signal) => (end = `exit status ${code ?? signal}`));
    postmaster.unref();
    while (end === undefined && Date.now() < deadline) {
      if ((await runningPostmaster(data))?.ready) return undefined;
      if (stop.aborted) postmaster.kill('SIGINT'); // again and again: it may not listen to signals yet
      await sleep(POLL_INTERVAL_MS);
    }
    if (stop.aborted) postmaster.kill('SIGQUIT'); // nothing where it has ended
    stop.throwIfAborted();
    if (end === undefined) return 'it is still starting';
    const reasons = (await readFile(log)).subarray(size).toString();
    if (PASSING_FAILURE.test(reasons)) return lastLines(reasons, 3);
    throw unusable(`did not start (${end}):\n${lastLines(reasons, 10)}\nIts log is ${log}. Repair what it names`);
  } finally {
    await output.close();
  }
}

/**
 * Asks PostgreSQL to end all sessions and stop (fast shutdown), then to stop at once (immediate shutdown: it replays its
 * log at the next start).
 *
 * @param hurry switches to the immediate shutdown
 */
export async function stopPostmaster({ data }: Cluster, hurry: AbortSignal): Promise<void> {
  const postmaster = await runningPostmaster(data);
  if (!postmaster) return;
  const isGone = async () => (await runningPostmaster(data))?.pid !== postmaster.pid;
  const stopBy = async (signal: NodeJS.Signals, deadline: number, isLate = () => false) => {
    if (await isGone()) return;
    process.kill(postmaster.pid, signal);
    while (Date.now() < deadline && !isLate() && !(await isGone())) await sleep(POLL_INTERVAL_MS);
  };
  if (!hurry.aborted) await stopBy('SIGINT', Date.now() + FAST_STOP_TIMEOUT_MS, () => hurry.aborted);
  await stopBy('SIGQUIT', Date.now() + IMMEDIATE_STOP_TIMEOUT_MS);
}

/** The size of the log in bytes, for {@link crashReasonSince}. */
export async function logSize({ log }: Cluster): Promise<number> {
  return (await stat(log)).size;
}

/** What made PostgreSQL end its sessions since its log had `begin` bytes, if it did: the last line that says so. */
export async function crashReasonSince({ log }: Cluster, begin: number): Promise<string | undefined> {
  const lines = (await readFile(log)).subarray(begin).toString().split('\n');
  for (const severity of ['PANIC', 'FATAL']) {
    const line = lines.findLast((each) => each.includes(`${severity}:  `) && !PASSING_REFUSAL.test(each));
    if (line) return `${line.slice(line.indexOf(severity))}. Its log is ${log}`;
  }
  return undefined;
}

/** What postmaster.pid says, if that process is alive. */
export async function runningPostmaster(data: string): Promise<Postmaster | undefined> {
  const file = join(data, 'postmaster.pid');
  const content = await readIfThere(file);
  if (!content) return undefined;
  const [pid, , , port, , , , status] = content.split('\n');
  if (!isAlive(Number(pid))) return undefined; // PostgreSQL sees that for itself
  if (!(await isPostmaster(Number(pid)))) {
    // After a restart of the machine or container its id can be another program's, and PostgreSQL would not start.
    if ((await readIfThere(file)) === content) await rm(file, { force: true });
    return undefined;
  }
  return { pid: Number(pid), port: Number(port), ready: status?.trim() === 'ready' };
}

async function isPostmaster(pid: number): Promise<boolean> {
  const command =
    process.platform === 'linux'
      ? await readIfThere(`/proc/${pid}/cmdline`) // empty for a zombie
      : await promisify(execFile)('ps', ['-o', 'command=', '-p', String(pid)]).then(
          ({ stdout }) => stdout,
          () => '',
        );
  return /\/postgres(?:[\0 \n]|$)/.test(command ?? '');
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return codeOf(error) === 'EPERM';
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function readIfThere(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    if (['ENOENT', 'ESRCH'].includes(codeOf(error))) return undefined;
    throw error;
  }
}
