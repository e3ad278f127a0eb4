/**
 * The command from a Git repository, as `npm install git+https://…` makes it: npm clones the repository into a temporary
 * folder, installs all dependencies there, those of development too, runs `prepare`, and packs the result.
 */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';
import { expectDemoPage, startIn } from '../support/installedService.js';
import { withNodeAndNpm } from './nodeAndNpm.js';

const run = promisify(execFile);

let folder: string;
let clone: string;
let environment: NodeJS.ProcessEnv;

beforeAll(async () => {
  // npm 12 installs nothing from Git unless it is allowed to.
  environment = await withNodeAndNpm(22, 11);
  folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-git-'));
  clone = join(folder, 'ein Klon für uns'); // whatever a folder's name may hold
  await run('git', ['clone', '--quiet', pathToFileURL(packageFolder).href, clone]);
});
afterAll(() => rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 }));

it('npm install from a Git repository gives a command that serves the demo', async () => {
  const empty = join(folder, 'an empty folder');
  await mkdir(empty);
  await run('npm', ['install', '--prefer-offline', `git+${pathToFileURL(clone).href}`], {
    cwd: empty,
    env: environment,
  });
  const command = join(empty, 'node_modules', '.bin', 'branded-phone-numbers');
  const service = await startIn(empty, [command, 'serve', '--demo'], environment);
  try {
    await expectDemoPage(service.url);
  } finally {
    await service.stop();
  }
});

it('npm ci --omit=dev in a checkout succeeds, though the tools for a build are missing', async () => {
  await run('npm', ['ci', '--omit=dev', '--prefer-offline'], { cwd: clone, env: environment });
  const { stdout } = await run('npm', ['ls', '--omit=dev', '--json'], { cwd: clone, env: environment });
  expect(Object.keys(JSON.parse(stdout).dependencies)).toContain('express');
});
