/** Replaces a file atomically, or writes it in place if it can't be replaced. */
import { randomUUID } from 'node:crypto';
import { constants, rmSync, type Stats } from 'node:fs';
import { access, copyFile, type FileHandle, lstat, open, rename } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { codeOf } from '../../database/errors.js';

/** Error codes if no file can be created in a folder: it is read-only for this user, or at all. */
const NOT_WRITABLE = /^(EACCES|EPERM|EROFS)$/;

/**
 * Writes the file `name` by calling `fill`. Writes to a draft in the same folder, which replaces `name`, with its
 * permissions, only once `fill` has succeeded. If that would change the file's owner or group, or `name` is a mount, the
 * complete draft is copied into the file. Writes directly to a link, pipe or device, and to a file in a folder in which this
 * user can't create a draft.
 * @returns the result of `fill`
 */
export async function writeWhole<T>(
  name: string,
  fill: (write: (text: string) => Promise<void>) => Promise<T>,
): Promise<T> {
  const before = await lstat(name).catch(() => undefined);
  const path = join(dirname(name), `.branded-phone-numbers-${randomUUID()}.partial`);
  const draft = (before?.isFile() ?? true) ? await openDraft(path) : undefined;
  const file = draft ?? (await open(name, 'w'));
  // Also if a signal ends the process.
  const discard = () => draft && rmSync(path, { force: true });
  process.once('exit', discard);
  try {
    const result = await fill((text) => file.writeFile(text));
    const isCopied = draft && before && (await isOfOthers(name, before, draft));
    if (draft && before) await draft.chmod(before.mode);
    if (draft) await draft.sync();
    await file.close();
    if (isCopied) await copyFile(path, name);
    else if (draft) await replace(name, path);
    return result;
  } finally {
    await file.close().catch(() => {});
    discard();
    process.off('exit', discard);
  }
}

/** Opens a new file; returns undefined if this user can't create files in its folder. */
async function openDraft(path: string): Promise<FileHandle | undefined> {
  return open(path, 'wx').catch((error) => {
    if (NOT_WRITABLE.test(codeOf(error))) return undefined;
    throw error;
  });
}

/** Returns whether the draft would change the owner or group of the file, which this user may write. */
async function isOfOthers(name: string, before: Stats, draft: FileHandle): Promise<boolean> {
  const { uid, gid } = await draft.stat();
  if (uid === before.uid && gid === before.gid) return false;
  return access(name, constants.W_OK).then(
    () => true,
    () => false,
  );
}

/** Renames `path` to `name`, or copies it there if `name` is a mount, such as a file that a container was given. */
async function replace(name: string, path: string): Promise<void> {
  await rename(path, name).catch((error) => {
    if (codeOf(error) !== 'EBUSY') throw error;
    return copyFile(path, name);
  });
}
