/** The embedded PostgreSQL when it or its processes are killed, hang, or open and close it at the same moment. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, chown, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { openEmbeddedPostgres } from '../../../src/operator/embeddedPostgres/embeddedPostgres.js';
import { closeDatabase, openDatabase } from '../../support/database.js';
import {
  fill,
  folder,
  inside,
  postmasterPid,
  query,
  spawnUser,
  useFolder,
  user,
} from '../../support/embeddedPostgresFolder.js';
import { until } from '../../support/until.js';
import { isRoot } from './asNobody.js';
import { expectNotJoinedAfterMove, expectNotSharedWithCopy, LONG } from './copies.js';

useFolder();

/** Returns the folders beside the data that an unfinished initdb left. */
const unfinishedFolders = async () => (await readdir(folder)).filter((name) => name.startsWith('postgres.'));

describe('the embedded PostgreSQL', () => {
  it('empties its log at a start only if it is large', async () => {
    await fill();
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

  it('can be opened by several processes at the same moment, in an empty folder, and closed by them', async () => {
    const users = await Promise.all([user(), user(), user()]);
    expect(new Set(users.map(({ url }) => url)).size).toBe(1);
    await Promise.all(users.map(({ close }) => close()));
    expect(await postmasterPid()).toBeUndefined();
    expect(await unfinishedFolders()).toEqual([]);
  });

  it('can be opened while the last process closes it', async () => {
    await fill();
    let current = await openEmbeddedPostgres(folder);
    for (let round = 0; round < 12; round++) {
      const [, next] = await Promise.all([current.close(), sleep(round * 3).then(() => openEmbeddedPostgres(folder))]);
      await query(next.url, 'select 1');
      current = next;
    }
    await current.close();
    expect(await postmasterPid()).toBeUndefined();
  });

  it('is joined only once no other process is about to stop it', async () => {
    await fill();
    const first = await openEmbeddedPostgres(folder);
    const other = openDatabase(first.url);
    await other.$client`SELECT set_config('application_name', 'branded-phone-numbers leaving', false)`;
    const opening = openEmbeddedPostgres(folder);
    const attempts = new Set<number>();
    await until(async () => {
      const users = await other.$client`SELECT pid FROM pg_stat_activity WHERE application_name LIKE '%numbers user'`;
      for (const { pid } of users) attempts.add(pid);
      return attempts.size > 3;
    }, 'it tries again');
    await closeDatabase(other);
    await (await opening).close();
    await first.close();
  });

  it('is stopped by its last process even if another one started it again after it was killed', async () => {
    await fill();
    const first = await openEmbeddedPostgres(folder);
    process.kill((await postmasterPid()) ?? 0, 'SIGKILL');
    const second = await openEmbeddedPostgres(folder);
    const sessions = `SELECT FROM pg_stat_activity WHERE application_name = 'branded-phone-numbers user'`;
    await until(async () => (await query(second.url, sessions)).length === 2, 'the first process has joined it');
    await second.close();
    await query(first.url, 'select 1');
    await first.close();
    expect(await postmasterPid()).toBeUndefined();
  });

  it('recovers after a kill -9 of itself and its process', async () => {
    await fill();
    const killed = await user();
    await query(killed.url, 'create table kept as select 42 as response');
    const pid = await postmasterPid();
    process.kill(pid ?? 0, 'SIGKILL');
    await killed.kill();
    expect(await postmasterPid()).toBe(pid);

    const next = await openEmbeddedPostgres(folder);
    expect(await query(next.url, 'select response from kept')).toEqual([{ response: 42 }]);
    await next.close();
  });

  it.each([
    [
      'names a process that is alive',
      (pid: number) => `${pid}\n${inside('data')}\n1700000000\n1\n\n127.0.0.1\n\nready\n`,
    ],
    ['is empty', () => ''],
  ])(
    'does not start if a postmaster.pid that a hard restart left %s, and says what to do',
    async (_what, contentWith) => {
      await fill();
      const { uid, gid } = await stat(inside('data'));
      // PostgreSQL ignores the pid of another user's process, and of its own parents.
      const unrelated = spawn('sleep', ['60'], { uid, gid });
      const lockFile = inside('data/postmaster.pid');
      try {
        await writeFile(lockFile, contentWith(unrelated.pid ?? 0), { mode: 0o600 });
        await chown(lockFile, uid, gid);
        await expect(openEmbeddedPostgres(folder)).rejects.toThrow(
          /postmaster\.pid.*Stop .* If there is none, .*delete .*\/postmaster\.pid, or set DATABASE_URL/s,
        );
        await rm(lockFile);
        // The socket's lock file does not keep it from starting.
        await writeFile(inside('.s.PGSQL.1.lock'), contentWith(unrelated.pid ?? 0));
        const { url, close } = await openEmbeddedPostgres(folder);
        await query(url, 'select 1');
        await close();
      } finally {
        unrelated.kill();
      }
    },
  );

  it.each([
    [10, 'after it was killed', 'SIGKILL'],
    [25, 'while it hangs', 'SIGSTOP'],
  ] as const)('can be closed within %i seconds %s', async (seconds, _when, signal) => {
    await fill();
    const { close } = await openEmbeddedPostgres(folder);
    const pid = (await postmasterPid()) ?? 0;
    process.kill(pid, signal);
    const begin = performance.now();
    await close();
    expect(performance.now() - begin).toBeLessThan(seconds * 1000);
    if (signal === 'SIGSTOP') process.kill(pid, 'SIGCONT');
  });

  it('starts after a kill -9 during its first start', async () => {
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
    expect(await unfinishedFolders()).toEqual([]);
  });

  it.runIf(isRoot)('works for root in a container, where no init ends what remains of processes', async () => {
    const namespace = ['unshare', '--pid', '--fork', '--mount-proc', '--kill-child'];
    const docker = '-all,+chown,+dac_override,+fowner,+setgid,+setuid,+setpcap,+kill';
    const { close } = await user({ command: [...namespace, 'setpriv', `--bounding-set=${docker}`, '--inh-caps=-all'] });
    const begin = performance.now();
    await close();
    expect(performance.now() - begin).toBeLessThan(10_000);
  });
});

describe('the embedded PostgreSQL of a folder', () => {
  it('is shared, but not with a copy of the folder made while it runs', () => expectNotSharedWithCopy(''));

  it('with a path that is too long for a socket is not joined if the folder was moved away and replaced by a copy', () =>
    expectNotJoinedAfterMove(LONG));
});
