import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, chown, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import postgres from 'postgres';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { openEmbeddedPostgres } from '../src/embeddedPostgres.js';

vi.setConfig({ testTimeout: 60_000, hookTimeout: 30_000 });

const asRoot = process.getuid?.() === 0;
/** Another user, who may read everything: the checkout that the process is run from may be closed to others. */
const AS_NOBODY = [
  ...['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', '--securebits=+no_setuid_fixup'],
  ...['--inh-caps=-all,+dac_read_search', '--ambient-caps=-all,+dac_read_search'],
];
const children: ChildProcess[] = [];
let home: string; // 0700, as mkdtemp makes it: as root, no other user can enter
let folder: string;

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'embedded-postgres-'));
  folder = join(home, 'check out', '.data');
});

afterEach(async () => {
  for (const child of children.splice(0)) if (child.exitCode === null) child.kill('SIGKILL');
  const pid = await postmasterPid();
  if (pid && pid !== process.pid && isAlive(pid)) process.kill(pid, 'SIGQUIT');
  await until(async () => !pid || !isAlive(pid) || pid === process.pid);
  await rm(home, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
});

describe('the embedded PostgreSQL', () => {
  it('goes from nothing to a running, empty UTF-8 database within seconds', async () => {
    const begin = performance.now();
    const { url, close } = await openEmbeddedPostgres(folder);
    expect(performance.now() - begin).toBeLessThan(10_000);
    expect(
      await query(
        url,
        `select current_database() as database, pg_encoding_to_char(encoding) as encoding, datlocprovider as provider,
           datlocale as locale, current_setting('listen_addresses') as listening, current_setting('fsync') as fsync,
           current_setting('unix_socket_directories') as sockets
         from pg_database where datname = current_database()`,
      ),
    ).toEqual([
      {
        database: 'branded_phone_numbers',
        encoding: 'UTF8',
        provider: 'b',
        locale: 'C.UTF-8',
        listening: '127.0.0.1',
        fsync: 'on',
        sockets: '',
      },
    ]);
    await close();
  });

  it('keeps its data and password from other users of the machine', async () => {
    const { url, close } = await openEmbeddedPostgres(folder);
    const modes = ['', 'data', 'password', 'log'].map(async (name) => (await stat(inside(name))).mode & 0o777);
    expect(await Promise.all(modes)).toEqual([0o700, 0o700, 0o600, 0o600]);
    const guessed = new URL(url);
    guessed.password = 'postgres';
    await expect(query(guessed.href, 'select 1')).rejects.toMatchObject({ code: '28P01' });
    await close();
  });

  it('keeps the data from one start to the next, and stops in between', async () => {
    const first = await openEmbeddedPostgres(folder);
    await query(first.url, 'create table kept as select 42 as answer');
    await Promise.all([first.close(), first.close()]);
    await expect(query(first.url, 'select 1')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    expect(await postmasterPid()).toBeUndefined();

    const second = await openEmbeddedPostgres(folder);
    expect(await query(second.url, 'select answer from kept')).toEqual([{ answer: 42 }]);
    await second.close();
  });

  it('begins its log anew when it has grown large, and only then', async () => {
    await (await openEmbeddedPostgres(folder)).close();
    await appendFile(inside('log'), 'short\n');
    await (await openEmbeddedPostgres(folder)).close();
    expect(await readFile(inside('log'), 'utf8')).toContain('short\n');
    await appendFile(inside('log'), `${'x'.repeat(1023)}\n`.repeat(11 * 1024));
    await (await openEmbeddedPostgres(folder)).close();
    const log = await readFile(inside('log'), 'utf8');
    expect(log.length).toBeLessThan(100_000);
    expect(log).not.toContain('xxx');
    expect(log).toContain('starting PostgreSQL');
  });

  it('is shared by processes, and stopped by the last of them', async () => {
    const server = await user();
    const importer = await user();
    expect(importer.url).toBe(server.url);
    await importer.close();
    await query(server.url, 'select 1');
    await server.close();
    await expect(query(server.url, 'select 1')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });

  it('survives the first user leaving before the second', async () => {
    const server = await user();
    const importer = await user();
    await server.close();
    await query(importer.url, 'select 1');
    await importer.close();
    expect(await postmasterPid()).toBeUndefined();
  });

  it('lets processes open an empty folder at the same moment, and leave at the same moment', async () => {
    const users = await Promise.all([user(), user(), user()]);
    expect(new Set(users.map(({ url }) => url)).size).toBe(1);
    await Promise.all(users.map(({ close }) => close()));
    expect(await postmasterPid()).toBeUndefined();
    expect(await readdir(folder)).toEqual(['postgres']);
  });

  it('can be opened while the last user closes it', async () => {
    let current = await openEmbeddedPostgres(folder);
    for (let round = 0; round < 12; round++) {
      const [, next] = await Promise.all([current.close(), sleep(round * 3).then(() => openEmbeddedPostgres(folder))]);
      await query(next.url, 'select 1');
      current = next;
    }
    await current.close();
    expect(await postmasterPid()).toBeUndefined();
  });

  it('goes on after a kill -9 of its user, and is taken over by the next', async () => {
    const killed = await user();
    await killed.kill();
    await query(killed.url, 'select 1');
    const next = await openEmbeddedPostgres(folder);
    expect(next.url).toBe(killed.url);
    await next.close();
    expect(await postmasterPid()).toBeUndefined();
  });

  it('recovers after a kill -9 of its user and itself', async () => {
    const killed = await user();
    await query(killed.url, 'create table kept as select 42 as answer');
    const pid = await postmasterPid();
    process.kill(pid ?? 0, 'SIGKILL');
    await killed.kill();
    expect(await postmasterPid()).toBe(pid);

    const next = await openEmbeddedPostgres(folder);
    expect(await query(next.url, 'select answer from kept')).toEqual([{ answer: 42 }]);
    await next.close();
  });

  it('starts although its stale postmaster.pid names a process that is alive', async () => {
    await (await openEmbeddedPostgres(folder)).close();
    const content = `${process.pid}\n${inside('data')}\n1700000000\n5432\n\n127.0.0.1\n  1234  5678\nready   \n`;
    await writeFile(inside('data/postmaster.pid'), content, { mode: 0o600 });
    await (await openEmbeddedPostgres(folder)).close();
  });

  it('can be closed in little time when it was killed', async () => {
    const { close } = await openEmbeddedPostgres(folder);
    process.kill((await postmasterPid()) ?? 0, 'SIGKILL');
    const begin = performance.now();
    await close();
    expect(performance.now() - begin).toBeLessThan(10_000);
  });

  it('can be closed in limited time when it hangs', async () => {
    const { close } = await openEmbeddedPostgres(folder);
    const pid = (await postmasterPid()) ?? 0;
    process.kill(pid, 'SIGSTOP');
    const begin = performance.now();
    await close();
    expect(performance.now() - begin).toBeLessThan(25_000);
    process.kill(pid, 'SIGCONT');
  });

  it('still counts its users after a crash of one of its processes', async () => {
    const server = await user();
    await query(server.url, 'select pg_sleep(0)');
    const [backend] = await query(server.url, "select pid from pg_stat_activity where application_name like '% user'");
    process.kill(Number(backend?.pid), 'SIGKILL');
    const users = () => query(server.url, "select pid from pg_stat_activity where application_name like '% user'");
    await until(async () => {
      const [again] = await users().catch(() => []);
      return again !== undefined && again.pid !== backend?.pid;
    });
    await (await user()).close();
    await query(server.url, 'select 1');
    await server.close();
    expect(await postmasterPid()).toBeUndefined();
  });

  it('is not wedged by a kill -9 in the middle of its first start', async () => {
    for (const delay of [0, 150]) {
      const killed = spawnUser();
      await until(async () => (await readdir(folder).catch(() => [])).some((name) => name.startsWith('postgres.')));
      await sleep(delay);
      killed.kill('SIGKILL');
      await once(killed, 'exit');
    }
    await sleep(1_000); // the orphaned initdb ends
    const { url, close } = await openEmbeddedPostgres(folder);
    await query(url, 'select 1');
    await close();
    expect(await readdir(folder)).toEqual(['postgres']);
  });

  it('is stopped by its user, not by the Ctrl-C that stops its user', async () => {
    const { child, url } = await user({ ownGroup: true });
    process.kill(-(child.pid ?? 0), 'SIGINT');
    const [code] = await once(child, 'exit');
    expect(code).toBe(0); // it could still query before it closed
    await expect(query(url, 'select 1')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });

  it.runIf(asRoot)('works for a user who is not root', async () => {
    await chown(home, 65534, 65534);
    const { close } = await user({ command: AS_NOBODY });
    expect((await stat(inside('data'))).uid).toBe(65534);
    await close();
  });

  it.runIf(asRoot)('works for root without most of its powers, as in a container', async () => {
    const docker = '-all,+chown,+dac_override,+fowner,+setgid,+setuid,+setpcap,+kill';
    const { close } = await user({ command: ['setpriv', `--bounding-set=${docker}`, '--inh-caps=-all'] });
    await close();
  });
});

describe('the embedded PostgreSQL that cannot start says', () => {
  it('that another version made the data', async () => {
    await (await openEmbeddedPostgres(folder)).close();
    await writeFile(inside('data/PG_VERSION'), '15\n');
    await expect(openEmbeddedPostgres(folder)).rejects.toThrow(/is version 18, but .* by version 15.*DATABASE_URL/s);
  });

  it('what its log ends with', async () => {
    await (await openEmbeddedPostgres(folder)).close();
    await appendFile(inside('data/postgresql.conf'), "\nshared_buffers = 'many'\n");
    await expect(openEmbeddedPostgres(folder)).rejects.toThrow(
      /invalid value for parameter "shared_buffers": "many".*DATABASE_URL/s,
    );
  });

  it('that the folder cannot be made', async () => {
    await writeFile(join(home, 'file'), '');
    await expect(openEmbeddedPostgres(join(home, 'file', '.data'))).rejects.toThrow(
      /cannot use .*file.*ENOTDIR.*writable.*DATABASE_URL/s,
    );
  });

  it.runIf(asRoot)('that the folder is not writable, or is another user’s', async () => {
    await chown(home, 65534, 65534);
    await mkdir(folder, { recursive: true });
    await expect(user({ command: AS_NOBODY })).rejects.toThrow(/cannot use .*EACCES.*writable.*DATABASE_URL/s);
    await mkdir(inside(''), { mode: 0o700 });
    await expect(user({ command: AS_NOBODY })).rejects.toThrow(/as its owner, the user with the id 0.*DATABASE_URL/s);
  });

  it('that there are no programs for this machine', async () => {
    const arch = Object.getOwnPropertyDescriptor(process, 'arch') ?? {};
    Object.defineProperty(process, 'arch', { ...arch, value: 's390x' });
    try {
      await expect(openEmbeddedPostgres(folder)).rejects.toThrow(/no programs for .*-s390x.*DATABASE_URL/s);
    } finally {
      Object.defineProperty(process, 'arch', arch);
    }
  });
});

interface Spawning {
  command?: string[];
  ownGroup?: boolean;
}

/** Another process that has opened the folder. */
async function user(spawning: Spawning = {}) {
  const child = spawnUser(spawning);
  const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream });
  let complaint = '';
  child.stderr?.on('data', (chunk) => (complaint += chunk));
  const ended = once(child, 'close').then(() => {
    throw new Error(complaint);
  });
  ended.catch(() => {});
  const [url] = (await Promise.race([once(lines, 'line'), ended])) as [string];
  return {
    child,
    url,
    async close() {
      child.stdin?.end();
      const [code] = await once(child, 'exit');
      expect(code, complaint).toBe(0);
    },
    async kill() {
      child.kill('SIGKILL');
      await once(child, 'exit');
    },
  };
}

function spawnUser({ command = [], ownGroup = false }: Spawning = {}): ChildProcess {
  const program = `
    const [{ openEmbeddedPostgres }, { default: postgres }] =
      await Promise.all([import(${resolved('../src/embeddedPostgres.ts')}), import(${resolved('../node_modules/postgres/src/index.js')})]);
    const { url, close } = await openEmbeddedPostgres(${JSON.stringify(folder)});
    process.stdin.on('end', close).resume();
    process.once('SIGINT', async () => {
      await new Promise((resolve) => setTimeout(resolve, 300));
      const sql = postgres(url);
      await sql\`select 1\`;
      await sql.end();
      await close();
      process.exit();
    });
    console.log(url);`;
  const tsx = new URL('../node_modules/tsx/dist/loader.mjs', import.meta.url).href;
  const [file = '', ...args] = [
    ...command,
    ...[process.execPath, '--import', tsx, '--input-type=module', '--eval', program],
  ];
  const env = { ...process.env, HOME: home, TMPDIR: tmpdir() };
  const child = spawn(file, args, { cwd: '/', env, detached: ownGroup, stdio: 'pipe' });
  children.push(child);
  return child;
}

function resolved(path: string): string {
  return JSON.stringify(new URL(path, import.meta.url).href);
}

async function query(url: string, text: string): Promise<Record<string, unknown>[]> {
  const sql = postgres(url, { max: 1, connect_timeout: 5, onnotice: () => {} });
  try {
    return [...(await sql.unsafe(text))];
  } finally {
    await sql.end({ timeout: 1 });
  }
}

function inside(name: string): string {
  return join(folder, 'postgres', name);
}

async function postmasterPid(): Promise<number | undefined> {
  const content = await readFile(inside('data/postmaster.pid'), 'utf8').catch(() => '');
  return Number(content.split('\n')[0]) || undefined;
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

async function until(condition: () => Promise<boolean>): Promise<void> {
  for (const deadline = Date.now() + 10_000; Date.now() < deadline && !(await condition()); ) await sleep(5);
}
