/** Replaces a file atomically, or writes it in place if it can't be replaced. */
import { randomUUID } from 'node:crypto';
import { constants, rmSync, type Stats } from 'node:fs';
import { access, chmod, copyFile, type FileHandle, lstat, open, rename, stat } from 'node:fs/promises';
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
    await draft?.sync();
    // Some file systems report a failed write only now.
    await file.close();
    if (draft && before) await chmod(path, before.mode);
    const mustCopy = before && draft && (await mustKeepOwner(name, before, path));
    if (draft) await (mustCopy ? copyFile : replace)(path, name);
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

/** Returns whether the draft has another owner or group than the file, and the file can be written in place. */
async function mustKeepOwner(name: string, before: Stats, draft: string): Promise<boolean> {
  const { uid, gid } = await stat(draft);
  if (uid === before.uid && gid === before.gid) return false;
  return access(name, constants.W_OK).then(
    () => true,
    () => false,
  );
}

/** Renames the draft to `name`, or copies it there if `name` is a mount, such as a file that a container was given. */
async function replace(draft: string, name: string): Promise<void> {
  await rename(draft, name).catch((error) => {
    if (codeOf(error) !== 'EBUSY') throw error;
    return copyFile(draft, name);
  });
}
