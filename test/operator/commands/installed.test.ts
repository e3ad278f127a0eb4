/** The command in a checkout, and the one that docs/operations.md installs, also once its terminal is closed. */
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdir, mkdtemp, open, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { packageFolder } from '../../../src/packageFolder.js';
import { useCommand } from '../../support/command.js';
import { isAlive } from '../../support/embeddedPostgresFolder.js';
import { numberWith } from '../../support/numbers.js';
import { MAIN } from '../../support/serverProcess.js';
import { until } from '../../support/until.js';

const command = useCommand();
const manual = readFileSync('docs/operations.md', 'utf8');
const [documented = ''] = /^setsid branded-phone-numbers import .*$/m.exec(manual) ?? [];
const [, installed = ''] = /^install .*\/bin\/branded-phone-numbers <<'END'\n(.*?\n)END$/ms.exec(manual) ?? [];

/** Installs the command in a new folder with these settings; `file` returns the path of a file there. */
async function install(...settings: string[]) {
  const folder = await mkdtemp(join(command.folder, 'installed-'));
  const file = (name: string) => join(folder, name);
  // A link, since the path of a checkout may have a space.
  await symlink(packageFolder, file('package'));
  await mkdir(file('bin'));
  const program = installed.replace('/etc/', `${folder}/`).replace('/opt/branded-phone-numbers', file('package'));
  await writeFile(file('bin/branded-phone-numbers'), program, { mode: 0o755 });
  await writeFile(file('branded-phone-numbers.env'), settings.join('\n'));
  return { folder, file };
}

it('the command that is installed takes the settings that it is given, and the rest from the unit', async () => {
  const { file } = await install(
    "DATABASE_URL='postgres://host/production'",
    "CONTACT='https://a.example/$b#c'",
    "REDIS_URL='redis://x'",
  );
  const env = { PATH: process.env.PATH, DATABASE_URL: 'postgres://host/restored', REDIS_URL: '' };
  const printed = execFileSync(file('bin/branded-phone-numbers'), ['config'], { env, encoding: 'utf8' });
  expect(printed).toContain('DATABASE_URL=postgres://host/restored\n');
  expect(printed).toContain('CONTACT=https://a.example/$b#c\n');
  expect(printed).toContain('REDIS_URL=\n');
});

it('the help in a checkout has examples that run there', async () => {
  await symlink(MAIN, join(command.folder, 'branded-phone-numbers'));
  const args = ['./branded-phone-numbers', 'export', '--help'];
  const help = execFileSync(process.execPath, args, { cwd: command.folder, encoding: 'utf8' });
  expect(help.match(/^Usage: .*? |^ {2}.*branded-phone-numbers /gm)).toEqual([
    'Usage: ./branded-phone-numbers ',
    ...Array(4).fill('  ./branded-phone-numbers '),
  ]);
});

it.skipIf(process.platform !== 'linux').each([
  ['that was started as documented continues', documented, 'imported 1 number'],
  ['that was started with nohup stops', documented.replace('setsid', 'nohup'), 'stopped by SIGHUP'],
])('a command %s after its terminal is closed', { timeout: 300_000 }, async (_what, line, expected) => {
  const { folder, file } = await install(`DATABASE_URL='${command.databaseUrl}'`);
  const content = (name: string) => readFile(file(name), 'utf8').catch(() => '');
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
