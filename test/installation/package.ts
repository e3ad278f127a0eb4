/** The npm package of a checkout, installed into a folder. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/**
 * Packs the checkout in `source` and installs it in `folder`; returns the paths of the package and its command, and the package's
 * files.
 */
export async function installPackage(source: string, folder: string, options: string[] = []) {
  // Silent, so that the package's scripts print nothing beside the JSON.
  const pack = await run('npm', ['pack', ...options, '--silent', '--json', '--pack-destination', folder], {
    cwd: source,
  });
  const packed = JSON.parse(pack.stdout);
  // npm 12 prints an object by package name, older versions an array.
  const [{ filename, files }] = Array.isArray(packed) ? packed : Object.values(packed);
  await run('npm', ['install', '--prefix', folder, '--ignore-scripts', '--prefer-offline', join(folder, filename)]);
  return {
    tarball: join(folder, filename),
    command: join(folder, 'node_modules', '.bin', 'branded-phone-numbers'),
    files: files.map(({ path }: { path: string }) => path) as string[],
  };
}
