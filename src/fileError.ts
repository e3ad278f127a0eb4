/** File errors, explained to the user who named the file: which one, what is wrong with it, and what to do. */

/** What the system's codes mean where a file is read or written. */
const REASONS: Record<string, string> = {
  EACCES: 'permission denied; run this as a user who may, or change its permissions or those of its folder',
  EBADF: 'it is not open for that',
  EBUSY: 'it is in use',
  EDQUOT: 'your quota of disk space is used up; make room, or choose another folder',
  EFBIG: 'it would become larger than the system allows (ulimit -f)',
  EIO: 'the disk reports an error',
  EISDIR: 'it is a folder; name a file',
  ELOOP: 'its symbolic links lead in a circle',
  EMFILE: 'too many files are open; allow more (ulimit -n)',
  ENAMETOOLONG: 'its name is too long',
  ENFILE: 'too many files are open on this machine',
  ENOSPC: 'the disk is full; make room, or choose another folder',
  ENOTDIR: 'a part of its path is a file, not a folder',
  ENXIO: 'nobody is at the other end of it',
  EPERM: 'the system does not permit it',
  EPIPE: 'its reader has gone',
  EROFS: 'its disk is read-only; choose another folder',
  ESTALE: 'it was removed from its server',
  ETXTBSY: 'it is a program that is running',
};
const MISSING = { read: 'there is no such file', written: 'there is no such folder; make it first' };

/** A file can't be read or written. The message is a sentence; `code` is the system's, such as ENOENT. */
export class FileError extends Error {
  readonly code: string;

  /** @param name the file as the user named it, or what it is, such as "standard input" */
  constructor(name: string, what: keyof typeof MISSING, cause: unknown) {
    const { code = '', message } = cause as NodeJS.ErrnoException;
    const reason = code === 'ENOENT' ? MISSING[what] : (REASONS[code] ?? message);
    super(`${printable(name)} could not be ${what}: ${reason}${code && ` (${code})`}`, { cause });
    this.code = code;
  }
}

/** A name from outside, without characters that could control a terminal or break a line. */
export function printable(name: string): string {
  return name === '' ? "''" : name.replace(/\p{C}|[\p{Zl}\p{Zp}]/gu, '\ufffd');
}

/** What the system refused, as a {@link FileError}; any other error as it is. */
export function asFileError(name: string, what: keyof typeof MISSING, error: unknown): unknown {
  return error instanceof Error && 'syscall' in error ? new FileError(name, what, error) : error;
}

/** Does `work` on a file. @throws {FileError} where the system refuses it */
export async function onFile<T>(name: string, what: keyof typeof MISSING, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw asFileError(name, what, error);
  }
}
