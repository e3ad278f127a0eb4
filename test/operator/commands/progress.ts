/** What long commands say on standard error, with and without a terminal. */
import { execFileSync } from 'node:child_process';
import { open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import { packageFolder } from '../../../src/packageFolder.js';
import type { Commands } from '../../support/command.js';
import { connectTo } from '../../support/connection.js';
import { numberWith } from '../../support/numbers.js';
import { until } from '../../support/until.js';

const HELD = '+14155550199';

/**
 * Runs each command, and fails unless it prints its text without a terminal. At the same time, runs others on a terminal;
 * returns what they print there. They wait for a row, for input, or for a reader of their output, until all have printed.
 */
export async function expectProgress(command: Commands, texts: [string, RegExp][], ...terminals: string[]) {
  await command.run(['import', join(packageFolder, 'demo', 'numbers.ndjson')]);
  await command.run(['import', '-'], JSON.stringify(numberWith({ phoneNumber: HELD })));
  const changed = numberWith({ phoneNumber: HELD, internalName: 'Changed' });
  await writeFile(join(command.folder, 'changed'), JSON.stringify(changed));
  await writeFile(join(command.folder, 'gone'), `${HELD}\n+14155550123\n`);
  const holder = connectTo(command.databaseUrl);
  await holder`BEGIN`;
  await holder`SELECT FROM branded_phone_numbers WHERE phone_number = ${HELD} FOR UPDATE`;
  execFileSync('sh', ['-c', 'rm -f input output; mkfifo input output'], { cwd: command.folder });
  const pipes = await Promise.all(['input', 'output'].map((name) => open(join(command.folder, name), 'r+')));
  const onTerminals = terminals.map((line) => command.shell(`script --quiet --command "$command ${line}" /dev/null`));
  const started = texts.map(async ([line, expected]) => {
    const { child, out, finished } = command.start(line.split(' '), { DATABASE_URL: command.databaseUrl });
    await until(() => expected.test(out.stderr), `${line} prints ${expected}`, 60_000);
    child.kill('SIGKILL');
    await finished;
  });
  await Promise.all(started);
  await Promise.all([...pipes.map((pipe) => pipe.close()), holder.end()]);
  return (await Promise.all(onTerminals)).map(({ stdout }) => stdout);
}

/** Fails unless a terminal showed one line, which was cleared each time. */
export const expectLine = (shown: string | undefined, line: string) =>
  expect(shown).toContain(`\r\u001b[K${line}\r\u001b[K`);
