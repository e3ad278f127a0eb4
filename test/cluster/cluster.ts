/**
 * The cluster that docs/operations.md recommends, on one machine, with the configuration files of deploy/.
 *
 *   clients ── HAProxy ─┬─ app1 ─────────────┬─ HAProxy, any server ─┬─ db1 ─┐
 *              (TLS)    ├─ app2 ─────────────┤                       ├─ db2  ├ Patroni, PostgreSQL
 *                       └─ app3 ── PgBouncer ┘                       └─ db3 ─┘
 *                             └─ Redis            app4, commands ── HAProxy, primary
 */
import { type ChildProcess, execFile, execFileSync, spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { chmod, chown, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { migrateDatabase } from '../../src/database/migrations.js';
import { migrationsFolder, packageFolder } from '../../src/packageFolder.js';
import { connectTo } from '../support/connection.js';
import { startHaproxy } from '../support/haproxy.js';
import { startPgbouncer } from '../support/pgbouncer.js';
import { place } from '../support/placed.js';
import { claimNetwork } from '../support/port.js';
import { endProcess } from '../support/process.js';
import { startRedisAt, type TestRedis } from '../support/redis.js';
import { SERVE, type Server, startServer } from '../support/serverProcess.js';
import { makeFolder, removeFolder } from '../support/temporaryFolder.js';
import { until } from '../support/until.js';

/** The programs that the cluster needs: the Debian package of each, and a command that succeeds if it is installed. */
const PROGRAMS: [name: string, program: string, ...args: string[]][] = [
  ['redis-server', 'redis-server', '--version'],
  ['pgbouncer', 'pgbouncer', '--version'],
  ['haproxy', 'haproxy', '-v'],
  ['patroni', 'patroni', '--version'],
  ['etcd-server', 'etcd', '--version'],
  ['postgresql-15', '/usr/lib/postgresql/15/bin/postgres', '--version'],
];

/** The packages that are not installed. */
export const missingPackages = PROGRAMS.filter(
  ([, ...command]) => spawnSync(command[0], command.slice(1)).status !== 0,
).map(([name]) => name);

export type Cluster = Awaited<ReturnType<typeof startCluster>>;
export type DatabaseServer = Cluster['servers'][number];

/** Starts the cluster, with a migrated database without numbers. */
export async function startCluster() {
  const folder = await makeFolder('branded-phone-numbers-cluster-');
  await chmod(folder, 0o755);
  const running = new Map<string, ChildProcess>();
  const instances = new Map<number, Server>();
  let haproxy: Awaited<ReturnType<typeof startHaproxy>> | undefined;
  let redis: TestRedis | undefined;
  let stopPgbouncer: (() => Promise<void>) | undefined;
  // Each server gets its own address and keeps the ports of the files.
  const network = await claimNetwork();
  const password = randomBytes(12).toString('hex');

  function run(
    name: string,
    program: string,
    args: string[],
    environment: Record<string, string> = {},
    asNobody = false,
  ) {
    const child = spawn(program, args, {
      cwd: asNobody ? '/' : packageFolder,
      env: { ...process.env, ...environment },
      stdio: ['ignore', 'ignore', process.env.CLUSTER_LOG ? 'inherit' : 'ignore'],
      // PostgreSQL and PgBouncer refuse to run as root.
      ...(asNobody && nobody ? { uid: nobody[0], gid: nobody[1] } : {}),
    });
    running.set(name, child);
    return child;
  }

  const kill = (name: string) => endProcess(running.get(name));

  function databaseServer(number: number) {
    const [name, address] = [`db${number}`, `${network}.2.${number}`];
    const home = join(folder, name);
    const url = `postgres://numbers:${password}@${address}:5432/numbers`;
    /** Returns the ids of PostgreSQL's processes, the postmaster first. */
    function postgres(): number[] {
      const [postmaster = ''] = readFileSync(join(home, 'data', 'postmaster.pid'), 'utf8').split('\n');
      return [
        postmaster,
        ...readFileSync(`/proc/${postmaster}/task/${postmaster}/children`, 'utf8').trim().split(' '),
      ].map(Number);
    }
    const server = {
      home,
      url,
      /** Starts Patroni, and so PostgreSQL. */
      startPatroni() {
        const environment = {
          PATRONI_NAME: name,
          PATRONI_RESTAPI_LISTEN: `${address}:8008`,
          PATRONI_RESTAPI_CONNECT_ADDRESS: `${address}:8008`,
          PATRONI_POSTGRESQL_LISTEN: `${address}:5432`,
          PATRONI_POSTGRESQL_CONNECT_ADDRESS: `${address}:5432`,
          PATRONI_POSTGRESQL_DATA_DIR: join(home, 'data'),
          PATRONI_POSTGRESQL_PGPASS: join(home, 'pgpass'),
          PATRONI_SUPERUSER_PASSWORD: password,
          PATRONI_REPLICATION_PASSWORD: password,
          PATRONI_REWIND_PASSWORD: password,
          PATRONI_RESTAPI_PASSWORD: password,
        };
        run(name, 'patroni', [join(home, 'patroni.yml')], environment, true);
      },
      killPatroni: () => kill(name),
      signalPostgres(signal: NodeJS.Signals) {
        for (const id of postgres()) process.kill(id, signal);
      },
      /** Returns whether Patroni's health check for a role succeeds, as HAProxy requests it. */
      is: (role: string) =>
        fetch(`http://${address}:8008/${role}`, { method: 'HEAD', signal: AbortSignal.timeout(1000) }).then(
          ({ ok }) => ok,
          () => false,
        ),
      /** Kills Patroni and PostgreSQL, in any state. */
      async remove() {
        await server.killPatroni();
        try {
          server.signalPostgres('SIGQUIT');
          server.signalPostgres('SIGCONT');
        } catch {
          // PostgreSQL does not run.
        }
      },
    };
    return server;
  }
  const servers = [1, 2, 3].map(databaseServer);

  async function stop(): Promise<void> {
    const programs = [...running.keys()].filter((name) => !name.startsWith('db'));
    await Promise.all([...instances.values()].map((instance) => instance.stop('SIGKILL')));
    await Promise.all([haproxy?.stop(), redis?.kill(), stopPgbouncer?.()]);
    await Promise.all([...servers.map((server) => server.remove()), ...programs.map(kill)]);
    await removeFolder(folder);
  }

  const address = (app: number) => `${network}.1.${app}`;
  async function startInstance(app: number): Promise<void> {
    const place = ['', '5433', '5433', '6432', '5432'][app];
    const instance = await startServer(SERVE, {
      HOST: address(app),
      PORT: '3000',
      METRICS_HOST: address(app),
      METRICS_PORT: '9464',
      // Prepared statements need PgBouncer 1.21; Debian 12 has an older one.
      DATABASE_URL: `postgres://numbers:${password}@${network}.0.1:${place}/numbers${app === 3 ? '?prepare=false' : ''}`,
      ...(app < 4 ? { REDIS_URL: `redis://${network}.0.2:6379`, TRUST_PROXY: '1' } : {}),
      LOG_LEVEL: 'error',
    });
    instances.set(app, instance);
  }

  /** Waits until Patroni has a primary and two replicas without lag, one of them synchronous. */
  async function hasTwoReplicas(): Promise<void> {
    const count = async (role: string) =>
      (await Promise.all(servers.map((server) => server.is(role)))).filter((is) => is).length;
    await until(
      async () =>
        (await count('sync')) === 1 && (await count('replica?lag=16MB')) === 2 && (await count('primary')) === 1,
      'Patroni has a primary and two replicas',
      240_000,
    );
  }

  async function startAll() {
    const etcd = `http://${network}.3.1`;
    run('etcd', 'etcd', [
      ...['--data-dir', join(folder, 'etcd'), '--log-level', 'error', '--initial-cluster', `default=${etcd}:2380`],
      ...['--listen-client-urls', `${etcd}:2379`, '--advertise-client-urls', `${etcd}:2379`],
      ...['--listen-peer-urls', `${etcd}:2380`, '--initial-advertise-peer-urls', `${etcd}:2380`],
    ]);
    redis = await startRedisAt(`${network}.0.2`, 6379);
    for (const server of servers) {
      await mkdir(server.home);
      await place('patroni/patroni.yml', network, server.home);
      if (nobody) await chown(server.home, ...nobody);
      server.startPatroni();
    }
    haproxy = await startHaproxy(network, folder);
    await writeFile(join(folder, 'userlist.txt'), `"numbers" "${password}"\n`);
    stopPgbouncer = await startPgbouncer(await place('pgbouncer/pgbouncer.ini', network, folder));

    const superuser = `postgres://postgres:${password}@${network}.0.1:5432/postgres`;
    await hasTwoReplicas();
    const sql = connectTo(superuser);
    await sql.unsafe(`CREATE ROLE numbers LOGIN PASSWORD '${password}'`);
    await sql.unsafe('CREATE DATABASE numbers OWNER numbers');
    await sql.end();
    const url = `postgres://numbers:${password}@${network}.0.1:5432/numbers`;
    await migrateDatabase(url, migrationsFolder);
    await Promise.all([1, 2, 3, 4].map(startInstance));
    return {
      haproxy,
      /** The URL of the instance that keeps its limit in PostgreSQL. */
      withoutRedis: `http://${address(4)}:3000`,
      /** Leads to the primary through HAProxy. */
      databaseUrl: url,
      /** The loopback network that replaces 10.0.0.0/16 and 127.0.0.0/16 in the files of deploy/. */
      network,
      servers,
      hasTwoReplicas,
      patronictl: (...args: string[]) =>
        promisify(execFile)('patronictl', ['-c', join(folder, 'db1', 'patroni.yml'), ...args], {
          env: { ...process.env, PATRONI_RESTAPI_PASSWORD: password },
        }),
      /** Stops and starts the instances behind HAProxy, one after another. */
      async restartInstances() {
        for (const app of [1, 2, 3]) {
          await instances.get(app)?.stop();
          await startInstance(app);
        }
      },
      stop,
    };
  }

  try {
    return await startAll();
  } catch (error) {
    await stop();
    throw error;
  }
}

/** The user and group of programs that refuse to run as root; undefined unless the tests run as root. */
const nobody =
  process.getuid?.() === 0
    ? (['-u', '-g'].map((option) => Number(execFileSync('id', [option, 'nobody']))) as [number, number])
    : undefined;
