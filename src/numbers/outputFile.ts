/** Replaces a file atomically. */
import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { chmod, open, readdir, readlink, realpath, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { codeOf } from '../database/errors.js';
import { onFile } from '../fileError.js';

/** A random name for a file that is not complete yet: in a container, process ids are used again. */
const PARTIAL = { start: '.branded-phone-numbers-', end: '.partial' };
/** If `kill -9` or a power cut ended an export, a later one removes its partial file after this time. */
const ABANDONED_AFTER_MS = 24 * 60 * 60 * 1000;

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
  const written = <T>(work: () => Promise<T>) => onFile(name, 'written', work);
  const { target, before, isReplaced } = await written(() => find(name));
  if (isReplaced) await removeAbandoned(dirname(target));
  const partial = `${PARTIAL.start}${randomBytes(8).toString('hex')}${PARTIAL.end}`;
  const path = isReplaced ? join(dirname(target), partial) : target;
  const file = await written(() => open(path, isReplaced ? 'wx' : 'w'));
  // Also when a signal ends the process.
  const discard = () => isReplaced && rmSync(path, { force: true });
  process.once('exit', discard);
  try {
    await fill((text) => written(() => file.writeFile(text)));
    await written(async () => {
      if (isReplaced) await file.sync();
      await file.close();
      if (before && isReplaced) await chmod(path, before.mode);
      if (isReplaced) await rename(path, target);
    });
  } catch (error) {
    await file.close().catch(() => {});
    discard();
    throw error;
  } finally {
    process.off('exit', discard);
  }
}

/**
 * Where a name leads to, and what is there; a link stays, and the file that it leads to is written, whether it exists or
 * not. What has no path of its own, such as the pipe of /dev/stdout, is written by the given name.
 */
async function find(name: string) {
  const before = await stat(name).catch(whereMissing);
  const target = before ? await realpath(name).catch(whereMissing) : await targetOfMissing(name);
  const isReplaced = target !== undefined && (before === undefined || before.isFile());
  return { target: isReplaced ? target : name, before, isReplaced };
}

/** Where a file that does not exist will be: the target of the last of its links. */
async function targetOfMissing(name: string): Promise<string> {
  const link = await readlink(name).catch(whereMissing);
  if (link === undefined) return name;
  // Not joined: if the folder is a link, `folder/..` need not be where the link is.
  return targetOfMissing(link.startsWith('/') ? link : `${await realpath(dirname(name))}/${link}`);
}

function whereMissing(error: unknown): undefined {
  if (codeOf(error) !== 'ENOENT') throw error;
}

/** Never fails: what can't be listed or removed is left. */
async function removeAbandoned(folder: string): Promise<void> {
  for (const name of await readdir(folder).catch(() => [])) {
    if (!name.startsWith(PARTIAL.start) || !name.endsWith(PARTIAL.end)) continue;
    const path = join(folder, name);
    const { mtimeMs } = (await stat(path).catch(() => undefined)) ?? { mtimeMs: Number.POSITIVE_INFINITY };
    if (Date.now() - mtimeMs > ABANDONED_AFTER_MS) await rm(path, { force: true }).catch(() => {});
  }
}
