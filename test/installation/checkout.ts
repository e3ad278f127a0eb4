/** This checkout, copied into another folder. */
import { mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { packageFolder } from '../../src/packageFolder.js';
import { run } from '../support/programs.js';

/** Copies all files except those that Git ignores. */
export async function copyCheckout(target: string): Promise<void> {
  const { stdout } = await run('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: packageFolder,
    maxBuffer: 2 ** 26,
  });
  const files = stdout.split('\0').filter(Boolean);
  for (const parent of new Set(files.map((file) => dirname(file)))) {
    await mkdir(join(target, parent), { recursive: true });
  }
  await run('cp', ['-p', '--parents', ...files, target], { cwd: packageFolder });
}
