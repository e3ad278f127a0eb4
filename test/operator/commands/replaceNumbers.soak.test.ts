import { describe, expect, it } from 'vitest';
import { isInstalled } from '../../support/programs.js';
import { command, expectFaulty, expectToNeedForce, phoneNumbers, replace, useNumbers, useRecipes } from './recipes.js';

useRecipes();
useNumbers();

describe.runIf(isInstalled('jq'))('a file that is everything', () => {
  it('is imported into an empty database', async () => {
    expect(await replace("replace-numbers '-before it.ndjson'")).toMatchObject({
      code: 0,
      stdout: 'imported 3 numbers, 0 carrier statuses\ndeleted 0 numbers\n',
    });
    expect(await phoneNumbers()).toEqual(['+11', '+12', '+13']);
  });

  it('deletes nothing if it is empty', () => expectFaulty(''));

  it('deletes all numbers only with --force', () => expectToNeedForce(3, ['+14', '+15', '+16', '+17']));

  it('deletes those numbers with --force', async () => {
    await command.run(['import', './-before it.ndjson']);
    expect(await replace(`replace-numbers --force <(head -n 1 -- '-before it.ndjson')`)).toMatchObject({ code: 0 });
    expect(await phoneNumbers()).toEqual(['+11']);
  });

  it.each([
    ['is shorter than the import', 'jq() { command jq "$@" | head -n 2; }; export -f jq', '-before it.ndjson'],
    ['is empty', 'branded-phone-numbers() { $command "$@" $([ $1 != import ] || echo --allow-empty); }', '/dev/null'],
  ])('deletes nothing if the list of what stays %s', async (_, before, file) => {
    await command.run(['import', './-before it.ndjson']);
    const exportAll = 'export -f branded-phone-numbers 2>/dev/null';
    const { code, stderr } = await replace(`${before}; ${exportAll}; replace-numbers --force '${file}'`);
    expect([code, stderr]).toEqual([
      1,
      expect.stringMatching(/numbers were imported, but \d are to stay; nothing was/),
    ]);
    expect(await phoneNumbers()).toEqual(['+11', '+12', '+13']);
  });
});
