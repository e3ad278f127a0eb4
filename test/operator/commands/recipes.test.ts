/** docs/imports.md, typed. */
import { chmod, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { useCommand } from '../../support/command.js';
import { ndjson } from '../../support/ndjson.js';
import { numberWith } from '../../support/numbers.js';
import { isInstalled } from '../../support/programs.js';
import { useProxy } from '../../support/toxicProxy.js';

const command = useCommand();
const inFolder = (name: string) => join(command.folder, name);
let manual: string;
/** Returns the code blocks of the manual in this language. */
const blocks = (language: string) =>
  [...manual.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, 'gms'))].map(([, code = '']) => code);

/** Runs a line of bash, with the command and the manual's scripts in its path. */
const type = (line: string) => command.shell(`PATH=$PWD:$PATH; ${line}`);

beforeAll(async () => {
  manual = await readFile('docs/imports.md', 'utf8');
  const scripts = blocks('bash').map((script) => [/^# ([-\w]+)/m.exec(script)?.[1] ?? '', script] as const);
  const program = '#!/bin/bash\nexec $command "$@"\n';
  for (const [name, script] of [...scripts, ['branded-phone-numbers', program] as const]) {
    await writeFile(inFolder(name), script);
    await chmod(inFolder(name), 0o755);
  }
});

beforeEach(() => command.sql`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`);

/** Returns the numbers that are exported. */
const exported = async () => {
  const { stdout } = await command.run(['export']);
  const lines = stdout.trim().split('\n');
  return lines.map((line) => JSON.parse(line));
};
const phoneNumbers = async () => (await exported()).map(({ phoneNumber }) => phoneNumber);

describe.runIf(isInstalled('mlr'))('CSV to NDJSON', () => {
  it.each(['with a row for each entry', 'with a column for each entry'])('%s', async (form) => {
    const index = Number(form.includes('column'));
    await writeFile(inFolder('numbers.csv'), blocks('csv')[index] ?? '');
    expect(await type(blocks('sh')[index] ?? '')).toMatchObject({ code: 0, stderr: '' });
    expect(await command.run(['import', 'numbers.ndjson'])).toMatchObject({
      code: 0,
      stdout: 'imported 2 numbers, 2 carrier statuses\n',
    });
    const [first, second] = await exported();
    expect(first).toMatchObject({
      phoneNumber: '+14155550123',
      businessProfile: { businessName: 'Circle Bank' },
      internalName: 'Sales, East',
      brandingNameShort: null,
      reportingGroup: 'Control',
      carrierStatuses: [
        { carrier: 'AT&T', feature: 'brandedCallerId', detailedStatus: 'approved.optIn' },
        { carrier: 'Verizon', feature: 'spamRemediation', detailedStatus: 'pending.optIn' },
      ],
    });
    expect(second).toMatchObject({ phoneNumber: '+14155550124', reportingGroup: null, carrierStatuses: [] });
  });
});

describe.runIf(isInstalled('jq'))('a file that is everything', () => {
  const numbers = ['+11', '+12', '+13'].map((phoneNumber) => numberWith({ phoneNumber }));

  it('is imported, and the numbers that it does not have are deleted', async () => {
    await writeFile(inFolder('before.ndjson'), ndjson(numbers));
    await writeFile(inFolder('after.ndjson'), ndjson([numberWith({ phoneNumber: '+14' }), ...numbers.slice(2)]));
    expect(await type('replace-numbers before.ndjson')).toMatchObject({
      code: 0,
      stdout: 'imported 3 numbers, 0 carrier statuses\ndeleted 0 numbers\n',
    });
    expect(await type('replace-numbers after.ndjson')).toMatchObject({
      code: 0,
      stdout: 'imported 2 numbers, 0 carrier statuses\ndeleted 2 numbers\n',
    });
    expect(await phoneNumbers()).toEqual(['+13', '+14']);
  });

  it.each(['', '{"phoneNumber":"+11"}\n'])('deletes nothing if it is faulty: %j', async (text) => {
    await writeFile(inFolder('before.ndjson'), ndjson(numbers));
    await command.run(['import', 'before.ndjson']);
    await writeFile(inFolder('faulty.ndjson'), text);
    expect((await type('replace-numbers faulty.ndjson')).code).toBe(1);
    expect(await phoneNumbers()).toEqual(['+11', '+12', '+13']);
  });
});

describe('a scheduled import', () => {
  const scheduled = (environment = '') =>
    type(`sleep() { :; }; export -f sleep; LOCK=lock ${environment} scheduled-import numbers.ndjson`);

  it('ends if the input is faulty, and is tried three times if PostgreSQL is away', async () => {
    await writeFile(inFolder('numbers.ndjson'), ndjson([numberWith({ phoneNumber: '+11' })]));
    expect(await scheduled()).toMatchObject({ code: 0, stdout: 'imported 1 number, 0 carrier statuses\n' });
    await writeFile(inFolder('numbers.ndjson'), 'nonsense');
    const faulty = await scheduled();
    expect([faulty.code, faulty.stderr.match(/not a JSON object/g)]).toEqual([1, ['not a JSON object']]);
    const proxy = await useProxy(command.databaseUrl);
    proxy.behave('refusing');
    const away = await scheduled(`DATABASE_URL=${proxy.through(command.databaseUrl)}`);
    expect([away.code, away.stderr.match(/can't be reached/g)?.length]).toEqual([75, 3]);
  });

  it('does not begin while the previous one runs', async () => {
    const line = 'exec 8> lock; flock 8; LOCK=lock scheduled-import numbers.ndjson';
    expect(await type(line)).toMatchObject({ code: 75, stdout: '', stderr: 'the previous run has not ended\n' });
    expect((await stat(inFolder('lock'))).size).toBe(0);
  });
});
