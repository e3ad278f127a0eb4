/** What npm installs by the lock of a checkout. */
import { expect, it } from 'vitest';
import { run } from '../support/programs.js';
import { makeFolder } from '../support/temporaryFolder.js';
import { copyCheckout } from './checkout.js';
import { withNodeAndNpm } from './nodeAndNpm.js';

it('npm ci --omit=dev of npm 12 succeeds in a checkout, without the tools for a build', async () => {
  // The path may have spaces and other letters than ASCII.
  const cwd = await makeFolder('ein Klon für uns-');
  await copyCheckout(cwd);
  const env = await withNodeAndNpm(22, 12);
  await run('npm', ['ci', '--omit=dev', '--prefer-offline'], { cwd, env });
  const { stdout } = await run('npm', ['ls', '--omit=dev', '--json'], { cwd, env });
  expect(Object.keys(JSON.parse(stdout).dependencies)).toContain('express');
});
