import { createReadStream, createWriteStream } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { HEADER, toCsv } from '../../../src/operator/numbers/csvOutput.js';
import { useCommand } from '../../support/command.js';
import { entryWith, numberWith } from '../../support/numbers.js';

const command = useCommand();
const inFolder = (name: string) => join(command.folder, name);
const lines = Array.from({ length: 4 }, (_, i) =>
  JSON.stringify(
    numberWith({
      phoneNumber: `+1415555010${i}`,
      carrierStatuses: [entryWith('AT&T', 'brandedCallerId', 'approved.optIn')],
    }),
  ),
);

describe('import', () => {
  it('imports nothing if lines are faulty or contradict each other, and names them as an editor of each file does', async () => {
    const [first = '', second = '', third = ''] = lines;
    await writeFile(inFolder('a.ndjson'), `\n${first}`);
    await writeFile(inFolder('b.CSV'), `${HEADER}${toCsv(first)}`.replaceAll('\n', '\r'));
    await writeFile(inFolder('c.csv'), `${HEADER}${toCsv(first)}${toCsv(second)}`);
    const input = `${second}\n${third.replace('{', '{"see line 2":1,')}\nnonsense\n`;
    const { code, stdout, stderr } = await command.run(['import', 'a.ndjson', 'b.CSV', 'c.csv', '-'], input);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr.split('\n')).toEqual([
      'b.CSV line 2: +14155550100: phoneNumber is given twice; see a.ndjson line 2',
      'c.csv line 2: +14155550100: phoneNumber is given twice; see a.ndjson line 2',
      '- line 1: +14155550101: phoneNumber is given twice; see c.csv line 3',
      expect.stringMatching(/^- line 2: \+14155550102: see line 2 is not a member of a branded phone number/),
      expect.stringMatching(/^- line 3: is not valid JSON/),
      '',
    ]);
    expect(await command.phoneNumbers()).toEqual([]);
  });

  it.each([
    ['import', 'missing.ndjson', /^ENOENT: no such file or directory.*'missing\.ndjson'\n$/],
    ['import', 'a-folder', /^EISDIR: illegal operation on a directory.*\n$/],
    ['import', '\u001b[2J\n', /^ENOENT: no such file or directory.*'\\u001b\[2J\\n'\n$/],
    ['import', '-', /^EISDIR: illegal operation on a directory.*\n$/],
    ['delete', 'missing.txt', /^ENOENT: no such file or directory.*'missing\.txt'\n$/],
  ])('%s reports in one line why it cannot read %j', async (name, file, reason) => {
    await mkdir(inFolder('a-folder'), { recursive: true });
    const { code, stdout, stderr } = await command.run([name, file], createReadStream(inFolder('a-folder')));
    expect([code, stdout, stderr]).toEqual([1, '', expect.stringMatching(reason)]);
  });

  it('escapes hidden characters in an unknown option', async () => {
    const { stderr } = await command.run(['import', '--\u202a\u001b[2J']);
    expect(stderr.split('\n')[0]).toBe("error: unknown option '--\\u202a\\u001b[2J'");
  });

  it('rejects standard input that is named twice', async () => {
    const { code, stderr } = await command.run(['import', '-', '-'], `${lines[2]}\n`);
    expect([code, stderr]).toEqual([1, 'standard input (-) is named more than once\n']);
  });

  it('imports several files, including standard input, as one', async () => {
    await writeFile(inFolder('a.ndjson'), `${lines[0]}\n${lines[1]}\n`);
    const { code, stdout, stderr } = await command.run(['import', 'a.ndjson', '-'], `${lines[2]}\n`);
    expect([code, stdout, stderr]).toEqual([0, 'imported 3 numbers, 3 carrier statuses\n', '']);
    expect(await command.phoneNumbers()).toEqual(['+14155550100', '+14155550101', '+14155550102']);
  });

  it('imports the line that its help shows', async () => {
    const { stdout } = await command.run(['import', '--help']);
    const [, line = ''] = /A line of a file:\n(.*)\n/.exec(stdout) ?? [];
    const imported = { code: 0, stdout: 'imported 1 number, 1 carrier status\n', stderr: '' };
    expect(await command.run(['import', '-'], line)).toMatchObject(imported);
  });

  it.each([
    [
      'import',
      'imported 0 numbers, 0 carrier statuses\n',
      'no numbers in the input; pass --allow-empty if that is intended\n',
    ],
    ['delete', 'deleted 0 numbers\n', expect.stringContaining('--allow-empty')],
  ])('fails if there are no numbers, unless --allow-empty is set: %s', async (name, stdout, advice) => {
    expect(await command.run([name, '-'], '\n')).toMatchObject({ code: 1, stdout, stderr: advice });
    expect(await command.run([name, '--allow-empty', '-'], '\n')).toMatchObject({ code: 0, stdout, stderr: '' });
  });

  it('fails, and reports on standard error what it imported, if it cannot write to standard output', async () => {
    const stdout = createWriteStream('/dev/full').on('error', () => {});
    const { code, stderr } = await command.run(['import', '-'], lines[3], { stdout });
    expect(code, stderr).toBe(1);
    expect(stderr.split('\n')[0]).toBe('imported 1 number, 1 carrier status');
    expect(stderr).toContain('could not write to standard output');
    expect(await command.phoneNumbers()).toContain('+14155550103');
  });

  it.each(['0', 'x', '33'])('rejects --jobs %s, says what to do and imports nothing', async (jobs) => {
    const before = await command.phoneNumbers();
    const line = JSON.stringify(numberWith({ phoneNumber: '+14155550199' }));
    const { code, stdout, stderr } = await command.run(['import', '--jobs', jobs, '-'], line);
    expect([code, stdout, stderr]).toEqual([1, '', expect.stringContaining('It must be a whole number from 1 to 32.')]);
    expect(await command.phoneNumbers()).toEqual(before);
  });
});
