import { once } from 'node:events';
import { appendFile, chown, mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { accountFor, run } from '../../../src/operator/embeddedPostgres/account.js';
import { openEmbeddedPostgres } from '../../../src/operator/embeddedPostgres/embeddedPostgres.js';
import { installedPrograms } from '../../../src/operator/embeddedPostgres/programs.js';
import { connectTo } from '../../support/connection.js';
import {
  folder,
  home,
  inside,
  isAlive,
  postmasterPid,
  query,
  useFolder,
  user,
} from '../../support/embeddedPostgresFolder.js';
import { CLEAR_TEXT, openImpostor } from '../../support/impostor.js';
import { freePort } from '../../support/port.js';
import { until } from '../../support/until.js';
import { AS_NOBODY, isRoot } from './asNobody.js';

useFolder();

describe('the embedded PostgreSQL', () => {
  it('creates an empty UTF-8 database that only its owner can reach, and keeps its data after a stop', async () => {
    const { url, close } = await openEmbeddedPostgres(folder);
    const [settings] = await query(
      url,
      `select current_database() as database, pg_encoding_to_char(encoding) as encoding, datlocprovider as provider,
           datlocale as locale, current_setting('listen_addresses') as listening, current_setting('fsync') as fsync,
           current_setting('unix_socket_directories') as sockets
         from pg_database where datname = current_database()`,
    );
    const locale = { encoding: 'UTF8', provider: 'b', locale: 'C.UTF-8' };
    expect(settings).toEqual({
      database: 'branded_phone_numbers',
      ...locale,
      listening: '',
      fsync: 'on',
      sockets: '..',
    });
    const modes = ['', 'data', 'password', 'log'].map(async (name) => (await stat(inside(name))).mode & 0o777);
    expect(await Promise.all(modes)).toEqual([0o700, 0o700, 0o600, 0o600]);
    const guessed = Object.assign(new URL(url), { password: 'postgres' }).href;
    await expect(query(guessed, 'select 1')).rejects.toMatchObject({ code: '28P01' });

    await query(url, 'create table kept as select 42 as response');
    await Promise.all([close(), close()]);
    await expect(query(url, 'select 1')).rejects.toMatchObject({ code: 'ENOENT' });
    expect(await postmasterPid()).toBeUndefined();

    const second = await openEmbeddedPostgres(folder);
    expect(await query(second.url, 'select response from kept')).toEqual([{ response: 42 }]);
    await second.close();
  });

  it('is shared by processes, and stopped by the last one to close it', async () => {
    const [first, second] = [await user(), await user()];
    expect(second.url).toBe(first.url);
    await first.close();
    const third = await user();
    await second.close();
    await query(third.url, 'select 1');
    await third.close();
    await expect(query(first.url, 'select 1')).rejects.toMatchObject({ code: 'ENOENT' });
    expect(await postmasterPid()).toBeUndefined();
  });

  it('keeps running after a kill -9 of the process that started it, and is used by the next process', async () => {
    const killed = await user();
    await killed.kill();
    const next = await openEmbeddedPostgres(folder);
    expect(next.url).toBe(killed.url);
    // PostgreSQL notices a moment after the kill that its client has ended.
    const sessions = `SELECT FROM pg_stat_activity WHERE application_name = 'branded-phone-numbers user'`;
    await until(async () => (await query(next.url, sessions)).length === 1, 'the session of the killed process ends');
    await next.close();
    expect(await postmasterPid()).toBeUndefined();
  });

  /** Starts a server that listens on a port, as version 1.0.0 did, and returns the URL of its database. */
  const startOldServer = async () => {
    await (await openEmbeddedPostgres(folder)).close();
    const programs = await installedPrograms(join(folder, 'libraries'));
    const account = await accountFor(inside(''), programs);
    const port = await freePort();
    const options = `-p ${port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=`;
    const args = ['start', '--pgdata=data', '--log=log', `--options=${options}`];
    await run(account, programs.pg_ctl, args, inside(''));
    const password = (await readFile(inside('password'), 'utf8')).trim();
    return `postgres://postgres:${password}@127.0.0.1:${port}/branded_phone_numbers`;
  };

  /** A folder with too long a path for a socket. */
  const LONG = 'x'.repeat(110);
  it.each([
    ['a server of version 1.0.0', '', async () => void (await startOldServer())],
    ['a server with too long a path for a socket', LONG, async () => (await user({ at: join(folder, LONG) })).kill()],
  ])('starts after a kill -9 of %s, and sends nothing to a program on its port', async (_what, name, start) => {
    await start();
    const at = join(folder, name);
    const [pid, , , port] = (await readFile(join(at, 'postgres/data/postmaster.pid'), 'utf8')).split('\n');
    process.kill(Number(pid), 'SIGKILL');
    await until(() => !isAlive(Number(pid)), 'it has ended');
    const impostor = await openImpostor(Number(port), [CLEAR_TEXT]);
    try {
      const { url, close } = await openEmbeddedPostgres(at);
      expect(await query(url, 'select 1 as response')).toEqual([{ response: 1 }]);
      await close();
      expect(impostor.received()).toBe('');
    } finally {
      impostor.close();
    }
  });

  describe('of a folder with a running server of version 1.0.0', () => {
    it('replaces that server if no process uses it', async () => {
      const old = await startOldServer();
      await query(old, 'create table kept as select 42 as response');
      const { url, close } = await openEmbeddedPostgres(folder);
      expect(await query(url, 'select response from kept')).toEqual([{ response: 42 }]);
      await close();
    });

    it('does not start if a process uses that server, and says to stop the process', async () => {
      const old = connectTo(await startOldServer(), { connection: { application_name: 'branded-phone-numbers user' } });
      await old`SELECT`;
      await expect(openEmbeddedPostgres(folder)).rejects.toThrow(
        /in use by a service or command of version 1\.0\.0\. Stop/,
      );
      expect(await old`SELECT 1 AS response`).toEqual([{ response: 1 }]);
      await old.end();
    });
  });

  it('is stopped by its process, not by a Ctrl-C to their group', async () => {
    const { child, url } = await user({ ownGroup: true });
    process.kill(-(child.pid ?? 0), 'SIGINT');
    const [code] = await once(child, 'exit');
    expect(code).toBe(0); // the process queried the database after the signal
    await expect(query(url, 'select 1')).rejects.toMatchObject({ code: 'ENOENT' });
  });

  it.runIf(isRoot)('works for a user who is not root', async () => {
    await chown(home, 65534, 65534);
    const { close } = await user({ command: AS_NOBODY });
    expect((await stat(inside('data'))).uid).toBe(65534);
    await close();
  });
});

describe('an embedded PostgreSQL that cannot start', () => {
  it('reports the end of its log, such as that the data is of another version', async () => {
    await (await openEmbeddedPostgres(folder)).close();
    await writeFile(inside('data/PG_VERSION'), '15\n');
    await expect(openEmbeddedPostgres(folder)).rejects.toThrow(
      /initialized by PostgreSQL version 15, which is not compatible with this version 18.*DATABASE_URL/s,
    );
    await writeFile(inside('data/PG_VERSION'), '18\n');
    await appendFile(inside('data/postgresql.conf'), "\nshared_buffers = 'many'\n");
    await expect(openEmbeddedPostgres(folder)).rejects.toThrow(
      /invalid value for parameter "shared_buffers": "many".*DATABASE_URL/s,
    );
  });

  it('reports that the folder cannot be created', async () => {
    await writeFile(join(home, 'file'), '');
    await expect(openEmbeddedPostgres(join(home, 'file', '.data'))).rejects.toThrow(
      /cannot use .*file.*ENOTDIR.*writable.*DATABASE_URL/s,
    );
  });

  it.runIf(isRoot)('reports that the folder is not writable, or belongs to another user', async () => {
    await chown(home, 65534, 65534);
    await mkdir(folder, { recursive: true });
    await expect(user({ command: AS_NOBODY })).rejects.toThrow(/cannot use .*EACCES.*writable.*DATABASE_URL/s);
    await mkdir(inside(''), { mode: 0o700 });
    await expect(user({ command: AS_NOBODY })).rejects.toThrow(/as its owner, the user with the id 0.*DATABASE_URL/s);
  });

  it('reports that there are no programs for this machine', async () => {
    const arch = Object.getOwnPropertyDescriptor(process, 'arch') ?? {};
    Object.defineProperty(process, 'arch', { ...arch, value: 's390x' });
    try {
      await expect(openEmbeddedPostgres(folder)).rejects.toThrow(/no programs for .*-s390x.*DATABASE_URL/s);
    } finally {
      Object.defineProperty(process, 'arch', arch);
    }
  });
});
