/** Commands whose standard output is a file on a disk that fills up while they write. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { packageFolder } from '../../../src/packageFolder.js';
import { useCommand } from '../../support/command.js';
import { numberWith } from '../../support/numbers.js';

const command = useCommand();

/** No file may grow beyond 8 KiB: a write that leads there is cut short, as on a full disk. */
const LIMITED = "trap '' XFSZ; ulimit -f 8;";
const LIMIT = 8192;

beforeAll(async () => {
  const line = JSON.stringify(numberWith({ phoneNumber: '+14155550100' }));
  await writeFile(join(command.folder, 'line.ndjson'), line);
  await command.run(['import', join(packageFolder, 'demo', 'numbers.ndjson')]);
  await command.run(['keys', 'create', '--name', 'Circle Bank']);
});

describe('a command', () => {
  it.each([
    'export',
    'keys create --name lost',
    'keys list',
    'keys list --json',
    'config',
    'migrate',
    'import line.ndjson',
    'check',
    '--help',
    'import --help',
    '--version',
  ])('fails if standard output takes only a part of what it writes: %s', async (args) => {
    await writeFile(join(command.folder, 'output'), 'x'.repeat(LIMIT - 3));
    const { code, stderr } = await command.shell(`${LIMITED} exec $command ${args} >> output`);
    expect([code, stderr]).toEqual([1, expect.stringContaining('could not write to standard output: EFBIG')]);
    expect(await readFile(join(command.folder, 'output'), 'utf8')).toHaveLength(LIMIT);
  });

  it('fails if its output is cut off after some pages', async () => {
    const { code, stderr } = await command.shell(`${LIMITED} exec $command export > output`);
    expect([code, stderr]).toEqual([1, expect.not.stringContaining('exported')]);
  });
});

describe('keys create', () => {
  it('leaves no key that works if only a part of it was written', async () => {
    const { stdout } = await command.run(['keys', 'list', '--json']);
    const lost = stdout.split('\n').filter((line) => line.includes('"lost"'));
    expect(lost.map((line) => JSON.parse(line).state)).toEqual(['revoked']);
  });
});
