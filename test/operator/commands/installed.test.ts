/** The command in a checkout, and the one that docs/operations.md installs for root. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { packageFolder } from '../../../src/packageFolder.js';
import { MAIN } from '../../support/serverProcess.js';
import { useTemporaryFolder } from '../../support/temporaryFolder.js';

const manual = readFileSync('docs/operations.md', 'utf8');
const [, installed = ''] = /^install .*\/bin\/branded-phone-numbers <<'END'\n(.*?\n)END$/ms.exec(manual) ?? [];
const folder = useTemporaryFolder('branded-phone-numbers-installed-');

it('the command that is installed takes the settings that it is given, and the rest from the unit', async () => {
  const file = join(folder.path, 'installed');
  // A link, since the path of a checkout may have a space.
  await symlink(packageFolder, join(folder.path, 'package'));
  const text = installed
    .replace('/etc/branded-phone-numbers', file)
    .replace('/opt/branded-phone-numbers', join(folder.path, 'package'));
  await writeFile(file, text);
  const settings = [
    "DATABASE_URL='postgres://host/production'",
    "CONTACT='https://a.example/$b#c'",
    "REDIS_URL='redis://x'",
  ];
  await writeFile(`${file}.env`, settings.join('\n'));
  const env = { PATH: process.env.PATH, DATABASE_URL: 'postgres://host/restored', REDIS_URL: '' };
  const printed = execFileSync('sh', [file, 'config'], { env, encoding: 'utf8' });
  expect(printed).toContain('DATABASE_URL=postgres://host/restored\n');
  expect(printed).toContain('CONTACT=https://a.example/$b#c\n');
  expect(printed).toContain('REDIS_URL=\n');
});

it('the help in a checkout has examples that run there', async () => {
  await symlink(MAIN, join(folder.path, 'branded-phone-numbers'));
  const args = ['./branded-phone-numbers', 'export', '--help'];
  const help = execFileSync(process.execPath, args, { cwd: folder.path, encoding: 'utf8' });
  expect(help.match(/^Usage: .*? |^ {2}.*branded-phone-numbers /gm)).toEqual([
    'Usage: ./branded-phone-numbers ',
    ...Array(4).fill('  ./branded-phone-numbers '),
  ]);
});
