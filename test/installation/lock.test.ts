/** What npm installs by the lock of a checkout. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { beforeAll, expect, it } from 'vitest';
import { useTemporaryFolder } from '../support/temporaryFolder.js';
import { copyCheckout } from './checkout.js';
import { withNodeAndNpm } from './nodeAndNpm.js';

const run = promisify(execFile);

// The path may have spaces and other letters than ASCII.
const checkout = useTemporaryFolder('ein Klon für uns-');
beforeAll(() => copyCheckout(checkout.path));

it('npm ci --omit=dev of npm 12 succeeds in a checkout, without the tools for a build', async () => {
  const env = await withNodeAndNpm(22, 12);
  await run('npm', ['ci', '--omit=dev', '--prefer-offline'], { cwd: checkout.path, env });
  const { stdout } = await run('npm', ['ls', '--omit=dev', '--json'], { cwd: checkout.path, env });
  expect(Object.keys(JSON.parse(stdout).dependencies)).toContain('express');
});
