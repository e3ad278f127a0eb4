/** What a long command says on standard error, with and without a terminal. */
import { execFileSync } from 'node:child_process';
import { open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { packageFolder } from '../../../src/packageFolder.js';
import { useCommand } from '../../support/command.js';
import { connectTo } from '../../support/connection.js';
import { numberWith } from '../../support/numbers.js';
import { until } from '../../support/until.js';

const command = useCommand();
const HELD = '+14155550199';

it('a command says every ten seconds how far it is, and on a terminal shows a bar instead', async () => {
  await command.run(['import', join(packageFolder, 'demo', 'numbers.ndjson')]);
  await command.run(['import', '-'], JSON.stringify(numberWith({ phoneNumber: HELD })));
  const changed = numberWith({ phoneNumber: HELD, internalName: 'Changed' });
  await writeFile(join(command.folder, 'changed'), JSON.stringify(changed));
  await writeFile(join(command.folder, 'gone'), `${HELD}\n+14155550123\n`);
  // The commands wait for this row, for input, or for a reader of their output.
  const holder = connectTo(command.databaseUrl);
  await holder`BEGIN`;
  await holder`SELECT FROM branded_phone_numbers WHERE phone_number = ${HELD} FOR UPDATE`;
  execFileSync('mkfifo', ['input', 'output'], { cwd: command.folder });
  const pipes = await Promise.all(['input', 'output'].map((name) => open(join(command.folder, name), 'r+')));
  const onTerminal = (line: string) => command.shell(`script --quiet --command "$command ${line}" /dev/null`);
  const [importing, exporting] = [onTerminal('import changed'), onTerminal('export output')];
  const started = (
    [
      ['import input', /^read 0\.0 MB\n/m],
      ['import changed', /^wrote 0 of 1 number\n/m],
      ['delete gone', /^wrote 1 of 2 numbers\n/m],
      ['check', /^checked \d+ of \d+ numbers\n/m],
      ['export output', /^exported 0 numbers so far\n/m],
    ] as const
  ).map(async ([line, expected]) => {
    const { child, finished } = command.start(line.split(' '), { DATABASE_URL: command.databaseUrl });
    let printed = '';
    child.stderr?.on('data', (text) => (printed += text));
    await until(() => expected.test(printed), `${line} prints ${expected}`, 60_000);
    child.kill('SIGKILL');
    await finished;
  });
  await Promise.all(started);
  await Promise.all([...pipes.map((pipe) => pipe.close()), holder.end()]);
  const { stdout } = await importing;
  // One line, which is cleared each time.
  expect(stdout).toContain(`\r\u001b[K${'░'.repeat(20)} wrote 0 of 1 number\r\u001b[K`);
  expect(stdout).toMatch(/\[Kimported 1 number,/);
  expect((await exporting).stdout).toContain(`\r\u001b[Kexported 0 numbers so far\r\u001b[K`);
});
