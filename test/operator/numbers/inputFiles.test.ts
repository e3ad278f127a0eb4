import { truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { openInputFiles } from '../../../src/operator/numbers/inputFiles.js';
import { UserError } from '../../../src/userError.js';
import { useTemporaryFolder } from '../../support/temporaryFolder.js';

const folder = useTemporaryFolder('branded-phone-numbers-input-');

test('an input file is read to its current end if it grows, and rejected if it is truncated', async () => {
  const name = join(folder.path, 'numbers.ndjson');
  await writeFile(name, 'first\nsecond\n');
  const shorter = await openInputFiles([name]);
  await truncate(name, 6);
  await expect(Promise.all(shorter.streams.map(text))).rejects.toThrow(UserError);
  const longer = await openInputFiles([name]);
  await writeFile(name, 'second\n', { flag: 'a' });
  expect(await Promise.all(longer.streams.map(text))).toEqual(['first\nsecond\n']);
});
