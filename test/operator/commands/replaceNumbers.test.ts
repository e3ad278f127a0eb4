/** The recipe of docs/imports.md for a file that is everything; replaceNumbers.soak.test.ts has the other cases. */
import { writeFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { ndjson } from '../../support/ndjson.js';
import { numberWith } from '../../support/numbers.js';
import { isInstalled } from '../../support/programs.js';
import { useProxy } from '../../support/toxicProxy.js';
import {
  command,
  expectFaulty,
  expectToNeedForce,
  inFolder,
  numbers,
  phoneNumbers,
  replace,
  useNumbers,
  useRecipes,
} from './recipes.js';

useRecipes();
useNumbers();

describe.runIf(isInstalled('jq'))('a file that is everything', () => {
  it('is imported, and the numbers that it does not have are deleted, even if it can be read only once', async () => {
    await writeFile(inFolder('after.ndjson'), ndjson([numberWith({ phoneNumber: '+14' }), ...numbers.slice(2)]));
    await command.run(['import', './-before it.ndjson']);
    expect(await replace('replace-numbers <(cat after.ndjson)')).toMatchObject({
      code: 0,
      stdout: 'imported 2 numbers, 0 carrier statuses\ndeleted 2 numbers\n',
    });
    expect(await phoneNumbers()).toEqual(['+13', '+14']);
  });

  it('deletes nothing if it is faulty', () => expectFaulty('{"phoneNumber":"+11"}\n'));

  it('deletes most numbers only with --force', () => expectToNeedForce(2, ['+11']));

  it('changes nothing if the file cannot be copied', async () => {
    const { code, stdout } = await replace("ulimit -f 0; replace-numbers '-before it.ndjson'");
    expect([code === 0, stdout, await command.sql`SELECT FROM branded_phone_numbers`]).toEqual([false, '', []]);
  });

  it('exits as the command does, if PostgreSQL is away', async () => {
    const proxy = await useProxy(command.databaseUrl);
    proxy.behave('refusing');
    const url = proxy.through(command.databaseUrl);
    expect((await replace(`DATABASE_URL=${url} replace-numbers '-before it.ndjson'`)).code).toBe(75);
  });
});
