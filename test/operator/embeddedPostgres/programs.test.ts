/** PostgreSQL's programs after an installation without install scripts, which lacks the links to their libraries. */
import { execFile } from 'node:child_process';
import { cp, lstat, mkdir, readdir, rename } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { installedPrograms, type Programs, packageName } from '../../../src/operator/embeddedPostgres/programs.js';
import { useTemporaryFolder } from '../../support/temporaryFolder.js';

const run = promisify(execFile);
const folder = useTemporaryFolder('postgres-programs-');

it('the links are made once in a given folder, also by concurrent calls, and again after the installation was moved', async () => {
  const home = folder.path;
  const forLinks = join(home, 'links');
  const { from, libraries } = await installWithoutScripts(join(home, 'installed'));
  await expect(run(join(libraries, '..', 'bin', 'postgres'), ['--version'])).rejects.toThrow(/shared librar/);

  const found = await Promise.all([1, 2, 3].map(() => installedPrograms(forLinks, from)));
  for (const programs of found) await expectToStart(programs);
  expect(await linksIn(libraries)).toEqual([]);
  const links = await linksIn(forLinks);
  expect(links.length).toBeGreaterThan(0);
  await installedPrograms(forLinks, from);
  expect(await linksIn(forLinks)).toEqual(links);

  await rename(join(home, 'installed'), join(home, 'moved'));
  await expectToStart(await installedPrograms(forLinks, from.replace('installed', 'moved')));
});

/** Copies the platform's package to a module folder as npm unpacks it, without links. */
async function installWithoutScripts(folder: string) {
  const original = dirname(dirname(createRequire(import.meta.url).resolve(packageName())));
  const copy = join(folder, 'node_modules', packageName());
  await mkdir(dirname(copy), { recursive: true });
  await cp(original, copy, {
    recursive: true,
    verbatimSymlinks: true,
    filter: async (path) => !(await lstat(path)).isSymbolicLink(),
  });
  return { from: join(folder, 'package.json'), libraries: join(copy, 'native', 'lib') };
}

/** Expects each program to start, since each needs different libraries. */
async function expectToStart({ environment, initdb, pg_ctl, postgres }: Programs) {
  for (const program of [initdb, pg_ctl, postgres]) {
    const { stdout } = await run(program, ['--version'], { env: { ...process.env, ...environment } });
    expect(stdout).toContain('(PostgreSQL) 18');
  }
}

async function linksIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true });
  return entries.filter((entry) => entry.isSymbolicLink()).map(({ name }) => name);
}
