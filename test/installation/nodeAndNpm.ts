/** Versions of Node and npm, from the npm packages of both. */
import { mkdir, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { packageFolder } from '../../src/packageFolder.js';
import { withoutNpm } from '../support/process.js';
import { run } from '../support/programs.js';

const CACHE = join(packageFolder, '.cache', 'node');
const PLATFORM = `node-${process.platform}-${process.arch}`;

/** Installs both, and returns an environment with them in PATH. */
export async function withNodeAndNpm(node: number, npm: number): Promise<NodeJS.ProcessEnv> {
  const installed = await installNodeAndNpm(node, npm);
  const bin = join(CACHE, `${node}-${npm}`, 'bin');
  await rm(bin, { recursive: true, force: true });
  await mkdir(bin);
  await symlink(installed.node, join(bin, 'node'));
  for (const name of ['npm', 'npx']) await symlink(join(installed.npm, 'bin', `${name}-cli.js`), join(bin, name));
  return { ...withoutNpm(), PATH: `${bin}:${process.env.PATH}` };
}

/** Installs both; returns the path of node and the folder of npm. */
export async function installNodeAndNpm(node: number | string, npm: number): Promise<{ node: string; npm: string }> {
  return { node: await installNode(node), npm: join(await install(`${node}-${npm}`, `npm@${npm}`), 'npm') };
}

/** Installs Node; returns its path. */
export async function installNode(version: number | string): Promise<string> {
  return join(await install(`${version}`, `${PLATFORM}@${version}`), PLATFORM, 'bin', 'node');
}

/** Installs a package into a folder of the cache, unless it is there; returns its folder of packages. */
async function install(name: string, packageName: string): Promise<string> {
  const folder = join(CACHE, name);
  await mkdir(folder, { recursive: true });
  const options = ['--no-save', '--no-package-lock', '--ignore-scripts', '--force', '--prefer-offline'];
  await run('npm', ['install', '--prefix', folder, ...options, packageName]);
  return join(folder, 'node_modules');
}
