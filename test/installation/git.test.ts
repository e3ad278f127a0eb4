/**
 * Installations from a Git repository, such as `npm install git+https://…`: npm clones the repository, installs all
 * dependencies, including those for development, runs `prepare` and packs the result.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { it } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';
import { expectDemoPage } from '../support/demo.js';
import { run } from '../support/programs.js';
import { startServer } from '../support/serverProcess.js';
import { useTemporaryFolder } from '../support/temporaryFolder.js';
import { withNodeAndNpm } from './nodeAndNpm.js';

const folder = useTemporaryFolder('branded-phone-numbers-git-');

it('npm install from a Git repository gives a command that serves the demo', async () => {
  // npm 12 does not install from Git by default.
  const environment = await withNodeAndNpm(22, 11);
  const clone = join(folder.path, 'ein Klon für uns'); // the path may have spaces and other letters than ASCII
  await run('git', ['clone', '--quiet', pathToFileURL(packageFolder).href, clone]);
  const empty = join(folder.path, 'an empty folder');
  await mkdir(empty);
  await run('npm', ['install', '--prefer-offline', `git+${pathToFileURL(clone).href}`], {
    cwd: empty,
    env: environment,
  });
  const command = join(empty, 'node_modules', '.bin', 'branded-phone-numbers');
  const service = await startServer([command, 'serve', '--demo'], environment, { folder: empty });
  try {
    await expectDemoPage(service.url);
  } finally {
    await service.stop();
  }
});
