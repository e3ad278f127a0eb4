/** Replaces a file atomically. */
import { randomUUID } from 'node:crypto';
import { rmSync } from 'node:fs';
import { lstat, open, rename } from 'node:fs/promises';
import { dirname, join } from 'node:path';

/**
 * Writes the file `name` by calling `fill`. Writes to a temporary file in the same folder, which replaces `name`, with
 * its permissions, only once `fill` has succeeded. Writes directly to a link, pipe or device.
 * @returns the result of `fill`
 */
export async function writeWhole<T>(
  name: string,
  fill: (write: (text: string) => Promise<void>) => Promise<T>,
): Promise<T> {
  const before = await lstat(name).catch(() => undefined);
  const isReplaced = before?.isFile() ?? true;
  const path = isReplaced ? join(dirname(name), `.branded-phone-numbers-${randomUUID()}.partial`) : name;
  const file = await open(path, isReplaced ? 'wx' : 'w');
  // Also if a signal ends the process.
  const discard = () => isReplaced && rmSync(path, { force: true });
  process.once('exit', discard);
  try {
    const result = await fill((text) => file.writeFile(text));
    if (before && isReplaced) await file.chmod(before.mode);
    if (isReplaced) await file.sync();
    await file.close();
    if (isReplaced) await rename(path, name);
    return result;
  } finally {
    await file.close().catch(() => {});
    discard();
    process.off('exit', discard);
  }
}
