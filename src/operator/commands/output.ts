/** Standard output. A command that can't write to it has failed. */
import { UserError } from '../../userError.js';

/** A failed write to standard output. Its cause has the code EPIPE if the reader closed the pipe. */
export class OutputError extends UserError {}

// The callback of write() gets each error, too; without a listener, the error would end the process first. This is also
// for the log, whose reader may close the pipe.
process.stdout.on('error', () => {});

/**
 * Writes `text` to standard output. Resolves once it is written.
 * @throws {OutputError} if it was not written
 */
export function write(text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(text, (cause) => {
      if (cause) reject(new OutputError(`could not write to standard output: ${cause.message}`, { cause }));
      else resolve();
    });
  });
}

/**
 * Writes a line about a finished change to standard output or, if that fails, to standard error.
 * @throws {OutputError} if it was not written to standard output
 */
export async function report(line: string): Promise<void> {
  try {
    await write(`${line}\n`);
  } catch (error) {
    console.error(line);
    throw error;
  }
}
