/** Standard output. A command that can't write all of its output has failed. */
import { fstatSync, writeFileSync } from 'node:fs';
import { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import { UserError } from '../../userError.js';

/** A failed write to standard output. Its cause has the code EPIPE if the reader closed the pipe. */
export class OutputError extends UserError {}

// The callback of write() gets each error, too; without a listener, the error would end the process first. This is also
// for the log, whose reader may close the pipe.
process.stdout.on('error', () => {});

/** Writes `text` to standard output. @throws {OutputError} if it was not written, or only in part */
export function write(text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    writeText(text, (cause) => (cause ? reject(outputError(cause)) : resolve()));
  });
}

/**
 * Writes `text` to standard output. Calls `onWritten` once it is written, or with the error of a pipe.
 * @throws {OutputError} if standard output is a file, and not all of the text was written
 */
export function writeText(text: string, onWritten?: (error?: Error | null) => void): void {
  const stdout: Writable & { fd: number } = process.stdout;
  if (stdout instanceof Socket) return void stdout.write(text, onWritten);
  try {
    // Not by Node's stream, which takes a short write, as to a disk that fills up, for a whole one.
    writeFileSync(stdout.fd, Buffer.from(text));
  } catch (cause) {
    throw outputError(cause as Error);
  }
  onWritten?.();
}

const outputError = (cause: Error) =>
  new OutputError(`could not write to standard output: ${cause.message}`, { cause });

/** Returns whether standard output leads nowhere: it is /dev/null, which Node also opens if it is closed. */
export function isDiscarded(): boolean {
  const { isTTY, fd } = process.stdout;
  return !isTTY && fstatSync(fd).isCharacterDevice();
}

/** Writes a line about a finished change. @throws {OutputError} if it could only be written to standard error */
export async function report(line: string): Promise<void> {
  try {
    await write(`${line}\n`);
  } catch (error) {
    console.error(line);
    throw error;
  }
}
