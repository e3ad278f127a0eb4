/** Exports into files that can't be replaced; export.test.ts has those of other users. */
import { chown, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { packageFolder } from '../../../src/packageFolder.js';
import { useCommand } from '../../support/command.js';
import { itemsOf } from '../../support/ndjson.js';
import { AS_NOBODY, isRoot } from '../embeddedPostgres/asNobody.js';

const command = useCommand();
/** What an export of all numbers prints at its end. */
let summary: string;

beforeAll(async () => {
  const { stdout } = await command.run(['import', join(packageFolder, 'demo', 'numbers.ndjson')]);
  summary = stdout.replace('imported', 'exported');
});

const inFolder = (name: string) => join(command.folder, name);

describe.runIf(isRoot)('export', () => {
  it('writes a file that is a mount, as a container has it, in place', async () => {
    await writeFile(inFolder('outside.ndjson'), 'before');
    await writeFile(inFolder('mount.ndjson'), '');
    const { code, stderr } = await command.shell(
      "unshare --mount bash -c 'mount --bind outside.ndjson mount.ndjson; exec $command export mount.ndjson'",
    );
    expect([code, stderr]).toEqual([0, summary]);
    expect(itemsOf(await readFile(inFolder('outside.ndjson'), 'utf8'))).toHaveLength(300);
  });

  it('writes a file in place if its folder can’t be written', async () => {
    await mkdir(inFolder('closed'));
    await writeFile(inFolder('closed/numbers.ndjson'), 'before');
    await chown(inFolder('closed/numbers.ndjson'), 65534, 65534);
    const asNobody = AS_NOBODY.join(' ');
    const { code, stderr } = await command.shell(`exec ${asNobody} $command export closed/numbers.ndjson`);
    expect([code, stderr]).toEqual([0, summary]);
    expect(itemsOf(await readFile(inFolder('closed/numbers.ndjson'), 'utf8'))).toHaveLength(300);
    const other = await command.shell(`exec ${asNobody} $command export closed/other.ndjson`);
    expect([other.code, other.stderr]).toEqual([1, expect.stringMatching(/^EACCES: .*'closed\/other\.ndjson'\n$/)]);
  });
});
