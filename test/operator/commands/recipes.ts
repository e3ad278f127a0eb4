/** The recipes of docs/imports.md, typed: `blocks` has its code, and its scripts are in the path of each line. */
import { chmod, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, beforeEach, expect } from 'vitest';
import { type Commands, useCommand } from '../../support/command.js';
import { ndjson } from '../../support/ndjson.js';
import { numberWith } from '../../support/numbers.js';

export let command: Commands;
let manual: string;

/** Returns the manual's code in this language. */
export const blocks = (language: string) =>
  [...manual.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, 'gms'))].map(([, code = '']) => code);

export const inFolder = (name: string) => join(command.folder, name);

/** Runs a line of bash, with the command and the manual's scripts in its path. */
export const type = (line: string) => command.shell(`PATH=$PWD:$PATH; ${line}`);

/** Writes the manual's scripts to the folder of the command, whose database is empty before each test of the file. */
export function useRecipes(): void {
  command = useCommand();
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
}

/** Returns the numbers that are exported. */
export const exported = async () => {
  const { stdout } = await command.run(['export']);
  const lines = stdout.trim().split('\n');
  return lines.map((line) => JSON.parse(line));
};
export const phoneNumbers = async () => (await exported()).map(({ phoneNumber }) => phoneNumber);

/** Three numbers, which `-before it.ndjson` has before each test of the file. */
export const numbers = ['+11', '+12', '+13'].map((phoneNumber) => numberWith({ phoneNumber }));
export const useNumbers = () => beforeEach(() => writeFile(inFolder('-before it.ndjson'), ndjson(numbers)));

/** Runs a line with an empty temporary folder, and expects that nothing is left in it. */
export const replace = async (line: string) => {
  const finished = await type(`mkdir -p tmp; export TMPDIR=$PWD/tmp; ${line}`);
  expect(await readdir(inFolder('tmp'))).toEqual([]);
  return finished;
};

/** Fails unless a file with `phones` is imported, but nothing is deleted, without --force: `gone` of the three numbers would be. */
export async function expectToNeedForce(gone: number, phones: string[]): Promise<void> {
  await command.run(['import', './-before it.ndjson']);
  const list = ndjson(phones.map((phoneNumber) => numberWith({ phoneNumber })));
  await writeFile(inFolder('after.ndjson'), list);
  expect(await replace('replace-numbers - < after.ndjson')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining(`${gone} of the 3 numbers before the import would be deleted: pass --force`),
  });
  expect(await phoneNumbers()).toEqual([...new Set(['+11', '+12', '+13', ...phones])]);
}

/** Fails unless a faulty file changes nothing. */
export async function expectFaulty(file: string): Promise<void> {
  await command.run(['import', './-before it.ndjson']);
  await writeFile(inFolder('faulty.ndjson'), file);
  expect((await replace('replace-numbers faulty.ndjson')).code).toBe(1);
  expect(await phoneNumbers()).toEqual(['+11', '+12', '+13']);
}
