import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { makeDataFolder } from '../../support/temporaryFolder.js';
import { serve } from './serve.js';

it('serve without any setting serves the same data after it was killed', async () => {
  const folder = await makeDataFolder('serve-');
  await (await serve(folder, '--demo')).end('SIGKILL');
  const { page, end } = await serve(folder);
  expect((await page('size=100')).items).toHaveLength(100);
  expect(await end('SIGINT')).toBe(0);
  // PostgreSQL writes this after it has removed its lock file, for which the command waits.
  const log = () => readFile(join(folder, '.data', 'postgres', 'log'), 'utf8');
  await expect.poll(async () => (await log()).trimEnd()).toMatch(/database system is shut down$/);
});
