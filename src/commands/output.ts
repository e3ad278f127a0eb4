/** Standard output: a command whose output can't be written has failed. */
import { UserError } from '../userError.js';

/** Standard output could not be written; the code of its cause is EPIPE where the reader has gone. */
export class OutputError extends UserError {}

// Each error comes to the write's callback as well; without this listener it would end the process before that.
process.stdout.on('error', () => {});

/**
 * Writes `text` to standard output, as it is.
 * @throws {OutputError} when it was not written
 */
export function write(text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(text, (cause) => {
      if (cause) reject(new OutputError(`standard output could not be written: ${cause.message}`, { cause }));
      else resolve();
    });
  });
}

/**
 * Writes the line that says what a command has done. If standard output can't be written, the line goes to standard error,
 * because what was done stays done, and the command fails.
 * @throws {OutputError} when it was not written to standard output
 */
export async function report(line: string): Promise<void> {
  try {
    await write(`${line}\n`);
  } catch (error) {
    console.error(line);
    throw error;
  }
}
