import { once } from 'node:events';
import { appendFile, chmod, chown, mkdir, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { openEmbeddedPostgres } from '../../../src/operator/embeddedPostgres/embeddedPostgres.js';
import { installedPrograms, run, withOwner } from '../../../src/operator/embeddedPostgres/programs.js';
import {
  fill,
  folder,
  home,
  inside,
  isAlive,
  postmasterPid,
  query,
  useFolder,
  user,
} from '../../support/embeddedPostgresFolder.js';
import { freePort } from '../../support/port.js';
import { until } from '../../support/until.js';
import { AS_NOBODY, isRoot } from './asNobody.js';
import { expectNotJoinedAfterMove, expectNotSharedWithCopy, LONG } from './copies.js';

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

    await chmod(inside(''), 0o755);
    const second = await openEmbeddedPostgres(folder);
    expect(await query(second.url, 'select response from kept')).toEqual([{ response: 42 }]);
    expect((await stat(inside(''))).mode & 0o777).toBe(0o700);
    await second.close();
  });

  it('is shared by processes, and stopped by the last one to close it', async () => {
    await fill();
    const [first, second] = [await user(), await user()];
    expect(second.url).toBe(first.url);
    await first.close();
    const third = await user();
    await second.close();
    const timers = vi.spyOn(globalThis, 'setTimeout');
    await (await openEmbeddedPostgres(folder)).close();
    // One would keep a command beside the service from ending.
    expect(timers.mock.calls.filter(([, ms]) => ms === 200)).toEqual([]);
    timers.mockRestore();
    await query(third.url, 'select 1');
    await third.close();
    await expect(query(first.url, 'select 1')).rejects.toMatchObject({ code: 'ENOENT' });
    expect(await postmasterPid()).toBeUndefined();
  });

  it('is used by a process although it ends idle sessions', async () => {
    await fill();
    const first = await openEmbeddedPostgres(folder);
    await query(first.url, 'ALTER ROLE postgres SET idle_session_timeout = 100');
    const second = await openEmbeddedPostgres(folder);
    const sessions = `SELECT pid FROM pg_stat_activity WHERE application_name = 'branded-phone-numbers user' ORDER BY pid`;
    const before = await query(second.url, sessions);
    await sleep(500);
    expect(await query(second.url, sessions)).toEqual(before);
    await Promise.all([first.close(), second.close()]);
  });

  it('keeps running after a kill -9 of the process that started it, and is used by the next process', async () => {
    await fill();
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

  it('is stopped by its process, not by a Ctrl-C to their group', async () => {
    await fill();
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

// The soak has each of them with the other length.
describe('the embedded PostgreSQL of a folder', () => {
  it('with a path that is too long for a socket is shared, but not with a copy of the folder made while it runs', () =>
    expectNotSharedWithCopy(LONG));

  it('is not joined if the folder was moved away and replaced by a copy', () => expectNotJoinedAfterMove(''));
});

it('an embedded PostgreSQL whose folder was deleted stops with its last process; its successor does not', async () => {
  await fill();
  const [first, deleted] = [await openEmbeddedPostgres(folder), await postmasterPid()];
  // PostgreSQL may add a file meanwhile.
  await rm(folder, { recursive: true, maxRetries: 10 });
  const second = await openEmbeddedPostgres(folder);
  await first.close();
  expect([deleted, await postmasterPid()].map((pid) => isAlive(pid ?? 0))).toEqual([false, true]);
  await query(second.url, 'select 1');
  await second.close();
  expect(await postmasterPid()).toBeUndefined();
});

describe('an embedded PostgreSQL that cannot start', () => {
  it('says what to do if its folder was emptied', async () => {
    await mkdir(inside(''), { recursive: true });
    await expect(openEmbeddedPostgres(folder)).rejects.toThrow(
      /cannot use .*postgres: its file password is missing. Restore the folder, or delete it .*, or set DATABASE_URL/,
    );
  });

  it.each([':', ';'])('says that its path must not have a "%s"', async (separator) => {
    const at = join(home, `a${separator} b`, '.data');
    await expect(openEmbeddedPostgres(at)).rejects.toThrow(
      /cannot run with ":" or ";" in a path \(.*libraries\)\. Move that folder, or set DATABASE_URL/,
    );
  });

  it('says to stop a server that an earlier version started, which listens on a port', async () => {
    await fill();
    const programs = await withOwner(inside(''), await installedPrograms(join(folder, 'libraries')));
    const options = `-p ${await freePort()} -c listen_addresses=127.0.0.1 -c unix_socket_directories=`;
    const args = ['start', '--pgdata=data', '--log=log', `--options=${options}`];
    await run(programs, programs.pg_ctl, args, inside(''));
    await expect(openEmbeddedPostgres(folder)).rejects.toThrow(/Stop the service or command of another version/);
  });

  it.each([
    ['does not run on Windows', 'platform', 'win32', /not run on Windows: set DATABASE_URL/],
    [
      'has no programs for this machine',
      'arch',
      's390x',
      /^The embedded PostgreSQL has no programs for .*-s390x.*DATABASE_URL/s,
    ],
  ] as const)('says that it %s', async (_what, name, value, message) => {
    const original = Object.getOwnPropertyDescriptor(process, name) ?? {};
    Object.defineProperty(process, name, { ...original, value });
    onTestFinished(() => void Object.defineProperty(process, name, original));
    await expect(openEmbeddedPostgres(folder)).rejects.toThrow(message);
  });

  it('reports the end of its log, such as that the data is of another version', async () => {
    await fill();
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
});
