/** Versions of Node and npm, from the npm packages of both. */
import { execFile } from 'node:child_process';
import { mkdir, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { packageFolder } from '../../src/packageFolder.js';
import { withoutNpm } from '../support/process.js';

const run = promisify(execFile);

/** Installs both into .cache, and returns an environment with them in PATH. */
export async function withNodeAndNpm(node: number, npm: number): Promise<NodeJS.ProcessEnv> {
  return { ...withoutNpm(), PATH: `${await installCommands(node, npm)}:${process.env.PATH}` };
}

const PLATFORM = `node-${process.platform}-${process.arch}`;

/** Installs Node into a folder; returns its path. */
export async function installNode(folder: string, version: number): Promise<string> {
  await install(folder, `${PLATFORM}@${version}`);
  return join(folder, 'node_modules', PLATFORM, 'bin', 'node');
}

/** Installs the packages of both into a folder; returns the path of node and the folder of npm. */
export async function installNodeAndNpm(folder: string, node: number | string, npm: number) {
  await install(folder, `${PLATFORM}@${node}`, `npm@${npm}`);
  const modules = join(folder, 'node_modules');
  return { node: join(modules, PLATFORM, 'bin', 'node'), npm: join(modules, 'npm') };
}

async function install(folder: string, ...packages: string[]): Promise<void> {
  await mkdir(folder, { recursive: true });
  const options = ['--no-save', '--no-package-lock', '--ignore-scripts', '--force', '--prefer-offline'];
  await run('npm', ['install', '--prefix', folder, ...options, ...packages]);
}

/** Installs both into .cache; returns the folder of their commands. */
async function installCommands(node: number, npm: number): Promise<string> {
  const folder = join(packageFolder, '.cache', 'node', `${node}-${npm}`);
  const installed = await installNodeAndNpm(folder, node, npm);
  const bin = join(folder, 'bin');
  await rm(bin, { recursive: true, force: true });
  await mkdir(bin);
  await symlink(installed.node, join(bin, 'node'));
  for (const name of ['npm', 'npx']) await symlink(join(installed.npm, 'bin', `${name}-cli.js`), join(bin, name));
  return bin;
}
