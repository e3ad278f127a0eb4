/** Commands whose standard output is a file on a disk that fills up while they write. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, expect } from 'vitest';
import { packageFolder } from '../../../src/packageFolder.js';
import { type Commands, useCommand } from '../../support/command.js';
import { numberWith } from '../../support/numbers.js';

/** No file may grow beyond 8 KiB: a write that leads there is cut short, as on a full disk. */
export const LIMITED = "trap '' XFSZ; ulimit -f 8;";
const LIMIT = 8192;

/** Returns the command, with numbers, a key, and a file to import. */
export function useLimited(): Commands {
  const command = useCommand();
  beforeAll(async () => {
    const line = JSON.stringify(numberWith({ phoneNumber: '+14155550100' }));
    await writeFile(join(command.folder, 'line.ndjson'), line);
    await command.run(['import', join(packageFolder, 'demo', 'numbers.ndjson')]);
    await command.run(['keys', 'create', '--name', 'Circle Bank']);
  });
  return command;
}

/** Fails unless the command fails if standard output takes only a part of what it writes. */
export async function expectFailure(command: Commands, args: string): Promise<void> {
  await writeFile(join(command.folder, 'output'), 'x'.repeat(LIMIT - 3));
  const { code, stderr } = await command.shell(`${LIMITED} exec $command ${args} >> output`);
  expect([code, stderr]).toEqual([1, expect.stringContaining('could not write to standard output: EFBIG')]);
  expect(await readFile(join(command.folder, 'output'), 'utf8')).toHaveLength(LIMIT);
}
