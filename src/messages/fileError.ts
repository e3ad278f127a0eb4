/** File errors, explained to the user who named the file: which one, and what is wrong with it. */
import { getSystemErrorMap } from 'node:util';
import { printable } from './shorten.js';

/** A file can't be read or written. The message is a sentence; `code` is the system's, such as ENOENT. */
export class FileError extends Error {
  readonly code: string;

  /** @param name the file as the user named it, or what it is, such as "standard input" */
  constructor(name: string, what: 'read' | 'written', cause: unknown) {
    const { code = '', errno = 0, message } = cause as NodeJS.ErrnoException;
    // Not Node's whole message: it names the file that was tried, which may be one of ours.
    const known = getSystemErrorMap().get(errno)?.[1];
    const reason = code === 'ENOENT' && what === 'written' ? 'there is no such folder' : (known ?? message);
    super(`${printable(name)} could not be ${what}: ${reason}${code && ` (${code})`}`, { cause });
    this.code = code;
  }
}
