/** Replaces a file atomically. */
import { randomUUID } from 'node:crypto';
import { rmSync } from 'node:fs';
import { open, realpath, rename, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { FileError } from '../messages/fileError.js';

/**
 * Writes the file `name` with `fill`. Its old content stays until everything is written, and if that fails: the new
 * content is written to a file beside it, which then replaces it and keeps its permissions. Anything but a regular file
 * (a pipe, a device) is written directly.
 * @throws {FileError} if the system refuses it, or the error of `fill`
 */
export async function writeWhole(
  name: string,
  fill: (write: (text: string) => Promise<void>) => Promise<void>,
): Promise<void> {
  const written = <T>(work: Promise<T>) =>
    work.catch((error: unknown) => {
      throw new FileError(name, 'written', error);
    });
  const before = await stat(name).catch(() => undefined);
  const isReplaced = before?.isFile() ?? true;
  // A link to a file stays a link.
  const target = before && isReplaced ? await written(realpath(name)) : name;
  const path = isReplaced ? join(dirname(target), `.branded-phone-numbers-${randomUUID()}.partial`) : name;
  const file = await written(open(path, isReplaced ? 'wx' : 'w'));
  // Also when a signal ends the process.
  const discard = () => isReplaced && rmSync(path, { force: true });
  process.once('exit', discard);
  try {
    await fill((text) => written(file.writeFile(text)));
    if (before && isReplaced) await written(file.chmod(before.mode));
    if (isReplaced) await written(file.sync());
    await written(file.close());
    if (isReplaced) await written(rename(path, target));
  } catch (error) {
    await file.close().catch(() => {});
    discard();
    throw error;
  } finally {
    process.off('exit', discard);
  }
}
