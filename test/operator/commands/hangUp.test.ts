/** A command, installed as documented, after its terminal was closed, such as by the end of an ssh session. */
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdir, mkdtemp, open, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { it } from 'vitest';
import { packageFolder } from '../../../src/packageFolder.js';
import { useCommand } from '../../support/command.js';
import { isAlive } from '../../support/embeddedPostgresFolder.js';
import { numberWith } from '../../support/numbers.js';
import { until } from '../../support/until.js';

const command = useCommand();
const manual = readFileSync('docs/operations.md', 'utf8');
const [documented = ''] = /^setsid branded-phone-numbers import .*$/m.exec(manual) ?? [];
const [, installed = ''] = /^install .*\/bin\/branded-phone-numbers <<'END'\n(.*?\n)END$/ms.exec(manual) ?? [];

it.skipIf(process.platform !== 'linux').each([
  ['that was started as documented continues', documented, 'imported 1 number'],
  ['that was started with nohup stops', documented.replace('setsid', 'nohup'), 'stopped by SIGHUP'],
])('a command %s after its terminal is closed', { timeout: 300_000 }, async (_what, line, expected) => {
  const folder = await mkdtemp(join(command.folder, 'terminal-'));
  await mkdir(join(folder, 'bin'));
  const file = (name: string) => join(folder, name);
  const content = (name: string) => readFile(file(name), 'utf8').catch(() => '');
  await symlink(packageFolder, file('package'));
  const program = installed.replace('/etc/', `${folder}/`).replace('/opt/branded-phone-numbers', file('package'));
  await writeFile(file('bin/branded-phone-numbers'), program, { mode: 0o755 });
  await writeFile(file('branded-phone-numbers.env'), `DATABASE_URL='${command.databaseUrl}'\n`);
  // The import reads until this is closed.
  execFileSync('mkfifo', [file('numbers.ndjson')]);
  const numbers = await open(file('numbers.ndjson'), 'r+');

  const env = { HOME: folder, PATH: `${file('bin')}:${process.env.PATH}` };
  const terminal = spawn('script', ['--quiet', '--command', 'exec bash --norc', '/dev/null'], { cwd: folder, env });
  terminal.stdout.resume();
  terminal.stdin.write(`echo $$ > shell\n${line}\n`);
  // What is written before it has opened the pipe would be lost.
  const listOpeners = `ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c -- '-> ${file('numbers.ndjson')}'`;
  const openers = () => Number(spawnSync('bash', ['-c', listOpeners], { encoding: 'utf8' }).stdout);
  await until(() => openers() > 1, 'it reads', 90_000);
  terminal.kill('SIGKILL');
  await once(terminal, 'close');
  const shell = Number(await content('shell'));
  await until(() => !isAlive(shell), 'the shell has ended');

  const isLogged = async () => (await content('import.log')).includes(expected);
  if (line !== documented) await until(isLogged, expected, 90_000);
  await numbers.write(`${JSON.stringify(numberWith({ phoneNumber: '+19' }))}\n`);
  await numbers.close();
  await until(isLogged, expected, 90_000);
});
