import { chmod, chown, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import type { BrandedPhoneNumber } from '../../../generated/types/models/index.js';
import { packageFolder } from '../../../src/packageFolder.js';
import { useCommand } from '../../support/command.js';
import { itemsOf } from '../../support/ndjson.js';
import { isRoot } from '../embeddedPostgres/asNobody.js';

const command = useCommand();
/** What an export of all numbers prints at its end. */
let summary: string;

beforeAll(async () => {
  const { stdout } = await command.run(['import', join(packageFolder, 'demo', 'numbers.ndjson')]);
  summary = stdout.replace('imported', 'exported');
});

const inFolder = (name: string) => join(command.folder, name);

describe('export', () => {
  it('writes all numbers to standard output, and their count to standard error', async () => {
    const { code, stdout, stderr } = await command.run(['export']);
    expect([code, stderr]).toEqual([0, summary]);
    expect(itemsOf(stdout)).toHaveLength(300);
    expect(await command.run(['export', '-'])).toMatchObject({ code: 0, stdout, stderr });
  });

  it('has the filters of the API as options', async () => {
    const { stdout } = await command.run([
      'export',
      ...['--status', 'rejected', '--status', 'approved', '--carrier', 'AT&T', '--feature', 'brandedCallerId'],
    ]);
    const items = itemsOf(stdout);
    expect(items.length).toBeGreaterThan(0);
    for (const { status, carrierStatuses } of items) {
      expect(['rejected', 'approved']).toContain(status);
      const matching = carrierStatuses.filter(
        ({ carrier, feature }) => `${carrier} ${feature}` === 'AT&T brandedCallerId',
      );
      expect(matching).toHaveLength(1);
    }
    const [{ phoneNumber, businessProfile }] = items as [BrandedPhoneNumber];
    const narrow = ['--phone-number', phoneNumber, '--business-profile-id', businessProfile.id.toUpperCase()];
    const one = await command.run(['export', ...narrow]);
    expect([itemsOf(one.stdout), one.stderr]).toEqual([[items[0]], expect.stringMatching(/^exported 1 number, \d/)]);
  });

  it('reports every invalid value of a filter, without opening a database', async () => {
    const { code, stdout, stderr } = await command.run([
      'export',
      ...['--status', 'aproved', '--phone-number', '4155550123', '--feature', ''],
      ...['--business-profile-id', '6513270e-269e-4d37-b2a7-4de452e6b438'],
      ...['--business-profile-id', '5d9dc9f8-1818-4811-892f-902bd23f0824'],
      ...Array.from({ length: 51 }, (_, i) => ['--carrier', `C${i}`]).flat(),
    ]);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr.trim().split('\n').sort()).toEqual([
      '--business-profile-id is given more than once; give it once',
      '--carrier has 51 values; at most 50 are allowed',
      '--feature must not be empty; omit it instead',
      expect.stringMatching(/^--phone-number "4155550123" is not a phone number in E\.164/),
      expect.stringMatching(/^--status "aproved" is not a .*; did you mean approved\?$/),
    ]);
  });

  it('lists the values of an option, and says which options are repeatable, in its help', async () => {
    const { stdout } = await command.run(['export', '--help']);
    const help = stdout.replaceAll(/\s+/g, ' ');
    expect(help).toContain('--feature <value>');
    expect(help).toContain('One of "brandedCallerId", "spamRemediation". Repeatable.');
    expect(help).not.toMatch(/--(next-cursor|size)/);
  });

  it('replaces a file after everything is written, and keeps its permissions', async () => {
    await writeFile(inFolder('kept.ndjson'), 'before');
    await chmod(inFolder('kept.ndjson'), 0o640);
    expect(await command.run(['export', 'kept.ndjson'])).toMatchObject({ code: 0, stdout: '', stderr: summary });
    expect(itemsOf(await readFile(inFolder('kept.ndjson'), 'utf8'))).toHaveLength(300);
    expect((await stat(inFolder('kept.ndjson'))).mode & 0o777).toBe(0o640);
    expect((await readdir(command.folder)).filter((name) => name.includes('ndjson'))).toEqual(['kept.ndjson']);
  });

  // The soak has other files that are written in place.
  it.runIf(isRoot)('writes a file of another user or group in place, so that it stays theirs', async () => {
    for (const [uid, gid] of [
      [65534, 65534],
      [0, 65534],
    ] as const) {
      await writeFile(inFolder('theirs.ndjson'), 'longer than an export '.repeat(20_000), { mode: 0o640 });
      await chown(inFolder('theirs.ndjson'), uid, gid);
      expect(await command.run(['export', 'theirs.ndjson'])).toMatchObject({ code: 0, stdout: '', stderr: summary });
      expect(itemsOf(await readFile(inFolder('theirs.ndjson'), 'utf8'))).toHaveLength(300);
      expect(await stat(inFolder('theirs.ndjson'))).toMatchObject({ uid, gid, mode: 0o100640 });
    }
  });

  it('leaves the file unchanged, and no temporary file, if it fails', async () => {
    await mkdir(inFolder('failing'));
    await writeFile(inFolder('failing/numbers.ndjson'), 'as before');
    // No file may grow beyond 8 KiB: the export fails in its middle, as on a full disk.
    const { code, stderr } = await command.shell(
      "trap '' XFSZ; ulimit -f 8; exec $command export failing/numbers.ndjson",
    );
    expect([code, stderr]).toEqual([1, expect.stringContaining('EFBIG')]);
    expect(await readFile(inFolder('failing/numbers.ndjson'), 'utf8')).toBe('as before');
    expect(await readdir(inFolder('failing'))).toEqual(['numbers.ndjson']);
  });

  it('leaves no temporary file after a signal', async () => {
    await mkdir(inFolder('stopped'));
    const { code, stderr } = await command.sql.begin(async (sql) => {
      // The export waits for this lock after it has opened its file.
      await sql`LOCK TABLE business_profiles`;
      return command.shell(`
        $command export stopped/numbers.ndjson & child=$!
        for i in {1..300}; do [ -n "$(ls -A stopped)" ] && break; sleep 0.1; done
        [ -n "$(ls -A stopped)" ] || { kill $child; exit 99; }
        kill $child; wait $child`);
    });
    expect(code, stderr).toBe(143);
    expect(await readdir(inFolder('stopped'))).toEqual([]);
  });

  it.each([
    ['a file without a name', '', /^the name .* empty/],
    ['a folder', 'a-folder', /^EISDIR: illegal operation on a directory.*'a-folder'\n$/],
    ['a file in no folder', 'none/numbers.ndjson', /^ENOENT: no such file or directory.*'none\//],
    ['a full device', '/dev/full', /^ENOSPC: no space left on device.*\n$/],
    ['a name with control characters', '\u001b[2J\n/x', /^ENOENT: no such file or directory.*'\\u001b\[2J\\n\//],
  ])('reports in one line why it cannot write to %s', async (_what, name, reason) => {
    await mkdir(inFolder('a-folder'), { recursive: true });
    const { code, stdout, stderr } = await command.run(['export', name]);
    expect([code, stdout, stderr]).toEqual([1, '', expect.stringMatching(reason)]);
    expect(stderr.trim().split('\n')).toHaveLength(1);
  });

  it('writes to a pipe or a device without a temporary file', async () => {
    expect(await command.run(['export', '/dev/null'])).toMatchObject({ code: 0, stderr: summary });
    expect((await stat('/dev/null')).isCharacterDevice()).toBe(true);
    const piped = await command.shell('$command export /dev/stdout | cat');
    expect([itemsOf(piped.stdout).length, piped.stderr]).toEqual([300, summary]);
  });

  it('exits silently if its reader closes the pipe', async () => {
    const { stdout, stderr } = await command.shell('set -o pipefail; $command export | head -n 1; echo "status $?"');
    const [line, status] = stdout.trim().split('\n');
    expect(itemsOf(`${line}\n`)).toHaveLength(1);
    expect([status, stderr]).toEqual(['status 141', '']);
  });
});
