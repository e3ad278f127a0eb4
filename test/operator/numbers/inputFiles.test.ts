import { truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { openInputFiles } from '../../../src/operator/numbers/inputFiles.js';
import { linesOf } from '../../../src/operator/numbers/lines.js';
import { UserError } from '../../../src/userError.js';
import { useTemporaryFolder } from '../../support/temporaryFolder.js';

const folder = useTemporaryFolder('branded-phone-numbers-input-');

test('an input file is read to its current end if it grows, and rejected if it is truncated', async () => {
  const name = join(folder.path, 'numbers.ndjson');
  await writeFile(name, 'first\nsecond\n');
  const shorter = await openInputFiles([name]);
  await truncate(name, 6);
  await expect(buffer(shorter.stream)).rejects.toThrow(UserError);
  const longer = await openInputFiles([name]);
  await writeFile(name, 'second\n', { flag: 'a' });
  expect(String(await buffer(longer.stream))).toBe('first\nsecond\n');
});

test('a line is named by its file, whether or not the files before it end with a line feed', async () => {
  const contents = { a: '1\n2', b: '3\n', c: '', d: '4\n\n', e: '5' };
  const names = Object.keys(contents).map((name) => join(folder.path, name));
  await Promise.all(Object.values(contents).map((content, i) => writeFile(names[i] as string, content)));
  const { stream, place } = await openInputFiles(names);
  const places: string[] = [];
  let line = 0;
  for await (const bytes of linesOf(stream)) {
    line++;
    if (bytes.length > 0) places.push(`${bytes}: ${place(line).replace(`${folder.path}/`, '')}`);
  }
  expect(places).toEqual(['1: a line 1', '2: a line 2', '3: b line 1', '4: d line 1', '5: e line 1']);
});
