/**
 * Many instances on one machine, from the parts that production would use, all on 127.0.0.1:
 *
 *   HAProxy ─┬─ instance 1 ─┐          ┌─ PgBouncer ── PostgreSQL ─┐
 *            ├─ instance 2 ─┼─ HAProxy ┤                           │ streaming replication
 *            └─ instance 3 ─┘          └─ PgBouncer ── replica ────┘
 *                  └── Redis             (used when the first is gone)
 *
 * Or, to scale reads: two replicas, and each instance reads from one of them alone.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { migrateDatabase } from '../../src/database/migrations.js';
import { migrationsFolder, packageFolder } from '../../src/packageFolder.js';
import { freePort, isListening } from '../port.js';
import { type PostgresServer, startPostgres, startReplica } from '../postgresServer.js';

/** The programs that have to be installed, by Debian's names, and the option that prints their version. */
const PROGRAMS: [name: string, question: string][] = [
  ['redis-server', '--version'],
  ['pgbouncer', '--version'],
  ['haproxy', '-v'],
];

/** Those of the programs that are not installed here. */
export const missingPrograms = PROGRAMS.filter(([name, question]) => spawnSync(name, [question]).status !== 0).map(
  ([name]) => name,
);

export interface Cluster {
  /** HAProxy. */
  url: string;
  /** The instances themselves, bypassing HAProxy. */
  instanceUrls: string[];
  primary: PostgresServer;
  /** One, or two where the instances read from replicas: the first serves the first and the third instance. */
  replicas: [PostgresServer, ...PostgresServer[]];
  /** Restarts the instances cleanly, one after the other. */
  restartInstances(): Promise<void>;
  stop(): Promise<void>;
}

const INSTANCES = 3;

interface Options {
  /** Of HAProxy; unset: a free one. */
  port?: number;
  /** What the instances read from: a primary and, when it is gone, its replica; or a replica each. */
  readsFrom?: 'primary' | 'replicas';
  /** Settings of the instances beside those of the cluster. */
  environment?: Record<string, string>;
}

/** Starts all of it on free ports. */
export async function startCluster({ port, readsFrom = 'primary', environment = {} }: Options = {}): Promise<Cluster> {
  const folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-cluster-'));
  await chmod(folder, 0o755);
  const running = new Map<string, ChildProcess>();
  const servers: PostgresServer[] = [];

  function run(name: string, program: string, args: string[], environment: Record<string, string> = {}): ChildProcess {
    const child = spawn(program, args, {
      cwd: packageFolder,
      env: { ...process.env, ...environment },
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    running.set(name, child);
    return child;
  }

  async function end(name: string, signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    const child = running.get(name);
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    child.kill(signal);
    await once(child, 'exit');
  }

  async function stop(): Promise<void> {
    await Promise.all(
      [...running.keys()].map((name) => end(name, name.startsWith('instance') ? 'SIGKILL' : 'SIGTERM')),
    );
    await Promise.all(servers.map((server) => server.remove()));
    await rm(folder, { recursive: true, force: true });
  }

  async function startServer(starting: Promise<PostgresServer>): Promise<PostgresServer> {
    const server = await starting;
    servers.push(server);
    return server;
  }

  async function startAll(): Promise<Cluster> {
    const primary = await startServer(startPostgres({ synchronous_commit: 'local' }));
    await migrateDatabase(primary.url, migrationsFolder);
    const replicas: Cluster['replicas'] = [await startServer(startReplica(primary))];
    if (readsFrom === 'replicas') replicas.push(await startServer(startReplica(primary)));

    const redisPort = await freePort();
    run('redis', 'redis-server', ['--port', String(redisPort), '--bind', '127.0.0.1', '--save', '', '--dir', folder]);

    const users = join(folder, 'users.txt');
    await writeFile(users, '"postgres" ""\n');
    const poolers: number[] = [];
    for (const [index, server] of [primary, ...replicas].entries()) {
      const listen = await freePort();
      poolers.push(listen);
      const file = join(folder, `pgbouncer${index}.ini`);
      await writeFile(file, pgbouncer(listen, server.port, users));
      // It refuses root.
      run(`pgbouncer${index}`, 'pgbouncer', [...(process.getuid?.() === 0 ? ['-u', 'nobody'] : []), '-q', file]);
    }
    const postgresPort = await freePort();
    const servers = [primary, ...replicas].map(({ port }, i) => ({ pooler: poolers[i] as number, checked: port }));
    await writeFile(join(folder, 'postgres.cfg'), haproxyOfPostgres(postgresPort, servers));
    run('haproxyOfPostgres', 'haproxy', ['-f', join(folder, 'postgres.cfg'), '-db', '-q']);
    await Promise.all([redisPort, postgresPort, ...poolers].map((each) => isListening(each)));

    const settings = {
      REDIS_URL: `redis://127.0.0.1:${redisPort}`,
      TRUST_PROXY: '1',
      LOG_LEVEL: 'error',
      ...environment,
    };
    function databaseUrl(index: number): string {
      const place = readsFrom === 'primary' ? postgresPort : poolers[1 + (index % replicas.length)];
      // Prepared statements need PgBouncer 1.21; Debian 12 has an older one.
      return `postgres://postgres@127.0.0.1:${place}/postgres?prepare=false`;
    }
    const ports: number[] = [];
    for (let i = 0; i < INSTANCES; i++) ports.push(await freePort());
    async function startInstance(index: number): Promise<void> {
      const PORT = String(ports[index]);
      const DATABASE_URL = databaseUrl(index);
      const command = ['--import', 'tsx', 'src/main.ts', 'serve'];
      const child = run(`instance${index}`, process.execPath, command, { ...settings, DATABASE_URL, PORT });
      const ended = once(child, 'exit').then(([code]) => {
        throw new Error(`instance ${index} ended with ${code}`);
      });
      await Promise.race([isListening(Number(PORT), 60_000), ended]);
    }
    for (let i = 0; i < INSTANCES; i++) await startInstance(i);

    const front = port ?? (await freePort());
    const file = join(folder, 'haproxy.cfg');
    await writeFile(file, haproxy(front, ports));
    run('haproxy', 'haproxy', ['-f', file, '-db', '-q']);
    await isListening(front);
    const url = `http://127.0.0.1:${front}`;
    await everyInstanceIsReady(ports);
    // Until HAProxy's checks have found them ready.
    await sleep(1500);

    return {
      url,
      instanceUrls: ports.map((each) => `http://127.0.0.1:${each}`),
      primary,
      replicas,
      async restartInstances() {
        for (let i = 0; i < INSTANCES; i++) {
          await end(`instance${i}`);
          await startInstance(i);
          await everyInstanceIsReady(ports);
          await sleep(1500);
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

async function everyInstanceIsReady(ports: number[]): Promise<void> {
  for (const port of ports) {
    for (let attempt = 0; ; attempt++) {
      const { ok } = await fetch(`http://127.0.0.1:${port}/readyz`);
      if (ok) break;
      if (attempt === 100) throw new Error(`the instance on ${port} does not become ready`);
      await sleep(100);
    }
  }
}

/**
 * In transaction mode a connection of the server serves many clients, so what a client would set for its session is set
 * for every server connection instead.
 */
function pgbouncer(port: number, target: number, users: string): string {
  return `[databases]
postgres = host=127.0.0.1 port=${target} dbname=postgres user=postgres connect_query='SET search_path = public; SET default_transaction_isolation = "read committed"; SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_bitmapscan = off; SET enable_seqscan = off; SET statement_timeout = 4000'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = trust
auth_file = ${users}
pool_mode = transaction
max_client_conn = 500
default_pool_size = 20
server_login_retry = 1
server_connect_timeout = 2
query_wait_timeout = 3
ignore_startup_parameters = search_path,default_transaction_isolation,plan_cache_mode,jit,enable_bitmapscan,enable_seqscan,statement_timeout,extra_float_digits
`;
}

/** The first of the servers that is there, each asked directly and used through its pooler. */
function haproxyOfPostgres(port: number, servers: { pooler: number; checked: number }[]): string {
  const lines = servers.map(
    ({ pooler, checked }, i) => `  server server${i} 127.0.0.1:${pooler} port ${checked}${i > 0 ? ' backup' : ''}`,
  );
  return `defaults
  mode tcp
  timeout connect 1s
  timeout client 1h
  timeout server 1h
listen postgres
  bind 127.0.0.1:${port}
  default-server check inter 400ms fall 1 rise 1 on-marked-down shutdown-sessions
${lines.join('\n')}
`;
}

function haproxy(port: number, instances: number[]): string {
  const servers = instances.map((each, i) => `  server instance${i + 1} 127.0.0.1:${each}`).join('\n');
  return `global
  maxconn 2000
defaults
  mode http
  timeout connect 1s
  timeout client 30s
  timeout server 10s
  timeout http-request 10s
  # A busy instance takes its time for /readyz, up to a second; without this it would have only as long as the interval.
  timeout check 2s
  retries 2
  # Reading twice does no harm.
  retry-on conn-failure empty-response response-timeout
  option redispatch
  option http-keep-alive
frontend public
  bind 127.0.0.1:${port}
  # What a client says of where it comes from is dropped.
  http-request set-header X-Forwarded-For %[src]
  default_backend instances
backend instances
  balance roundrobin
  option httpchk GET /readyz
  default-server check inter 400ms fall 1 rise 1
${servers}
`;
}
