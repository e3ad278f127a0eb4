/** A disk that fills up under the embedded PostgreSQL: a small one made for the test, which only root can mount. */
import { execFile, spawnSync } from 'node:child_process';
import { mkdtemp, rm, rmdir, statfs, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';
import { entryWith, numberWith } from '../numbers.js';

const SIZE_BYTES = 200 * 2 ** 20; // an empty database and its log take a third of it

const disk = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-disk-'));
const mount = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${SIZE_BYTES},mode=1777`, 'tmpfs', disk]);
const isMounted = mount.status === 0;
const obstacle = mount.error?.message ?? String(mount.stderr).trim();
if (!isMounted) await rmdir(disk);
if (!isMounted && process.env.SKIP_NOTHING) throw new Error(`no disk can be mounted: ${obstacle}`);
if (!isMounted) console.warn(`skipped: a full disk, as none can be mounted here (${obstacle})`);

describe.skipIf(!isMounted)('on a full disk an import', () => {
  let before: string;

  beforeAll(async () => {
    expect(await run('import', join(packageFolder, 'demo', 'numbers.ndjson'))).toMatchObject({ code: 0 });
    before = (await run('export')).stdout;
    const list = Array.from({ length: 20_000 }, (_, i) =>
      numberWith({
        phoneNumber: `+1415${5_000_000 + i}`,
        carrierStatuses: [entryWith('AT&T', 'brandedCallerId', 'approved.optIn')],
      }),
    );
    await writeFile(join(disk, 'large.ndjson'), list.map((item) => `${JSON.stringify(item)}\n`).join(''));
  });

  afterAll(async () => {
    spawnSync('umount', ['--lazy', disk]);
    await rmdir(disk);
  });

  it.each([
    ['before PostgreSQL starts', 0, 1],
    ['before PostgreSQL starts, not even in the log', 0, 4096],
    ['while the lines are read', 2 ** 20, 1],
    // PostgreSQL panics if it is the write-ahead log that finds no room.
    ...[24, 32, 40].map((megabytes): [string, number, number] => [
      `while the numbers are written into ${megabytes} MB`,
      megabytes * 2 ** 20,
      1,
    ]),
  ])(
    'that finds no room %s says so or where PostgreSQL does, and changes nothing',
    async (_when, freeBytes, logged) => {
      await fillUpTo(freeBytes, logged);
      const { code, stdout, stderr } = await run('import', join(disk, 'large.ndjson'));
      expect([code, stdout]).toEqual([1, '']);
      // A PostgreSQL that has panicked can't say why; its log does.
      expect(stderr).toMatch(
        /No space left on device|is there room on the disk|connections; .*\/\.data\/postgres\/log says why/,
      );
      expect(stderr).not.toContain('    at ');

      await rm(join(disk, 'filler'));
      const after = await run('export');
      expect(after.code, after.stderr).toBe(0);
      expect(after.stdout).toBe(before);
    },
  );
});

async function fillUpTo(freeBytes: number, loggedBytes: number): Promise<void> {
  // A log's last page has room for PostgreSQL's reason, as it nearly always does, unless it ends with a page.
  await truncate(join(disk, '.data', 'postgres', 'log'), loggedBytes);
  const { bavail, bsize } = await statfs(disk);
  await writeFile(join(disk, 'filler'), Buffer.alloc(bavail * bsize - freeBytes));
}

/** Runs the command in a folder on the disk, where its data are. */
function run(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  const command = [join(packageFolder, 'dist/src/main.js'), ...args];
  const options = { cwd: disk, env: { PATH: process.env.PATH ?? '', HOME: disk }, maxBuffer: 2 ** 26 };
  return new Promise((resolve) => {
    execFile(process.execPath, command, options, (error, stdout, stderr) =>
      resolve({ code: error ? Number(error.code) : 0, stdout, stderr }),
    );
  });
}
