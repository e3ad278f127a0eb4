/** A file that is there as a whole or not at all. */
import { rmSync } from 'node:fs';
import { chmod, open, realpath, rename, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { codeOf } from '../database/errors.js';

/**
 * Writes the file `name` by `fill`. Its old content stays until all is written, and for good if that fails: the new
 * content is written to a file beside it, which then replaces it and keeps its permissions. Anything but a regular file
 * (a pipe, a device) is written directly.
 * @throws the system's error, or that of `fill`
 */
export async function writeWhole(
  name: string,
  fill: (write: (text: string) => Promise<void>) => Promise<void>,
): Promise<void> {
  // The file that a link leads to is replaced, not the link.
  const target = await realpath(name).catch((error) => whereMissing(error, name));
  const before = await stat(target).catch((error) => whereMissing(error, undefined));
  const isReplaced = before === undefined || before.isFile();
  const path = isReplaced ? join(dirname(target), `.${basename(target)}.${process.pid}.partial`) : target;
  const file = await open(path, isReplaced ? 'wx' : 'w');
  // Also where a signal ends the process.
  const discard = () => isReplaced && rmSync(path, { force: true });
  process.once('exit', discard);
  try {
    await fill((text) => file.writeFile(text));
    if (isReplaced) await file.sync();
    await file.close();
    if (before && isReplaced) await chmod(path, before.mode);
    if (isReplaced) await rename(path, target);
  } catch (error) {
    await file.close().catch(() => {});
    discard();
    throw error;
  } finally {
    process.off('exit', discard);
  }
}

function whereMissing<T>(error: unknown, otherwise: T): T {
  if (codeOf(error) !== 'ENOENT') throw error;
  return otherwise;
}
