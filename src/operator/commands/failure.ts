/** How a command reports its failure, and its exit status. */
import { constants } from 'node:os';
import { causeOf, codeOf, failureOf, isFailover, reasonOf } from '../../database/errors.js';
import { escapeHidden } from '../../messages/shown.js';
import { Unfinished, UserError } from '../../userError.js';
import { OutputError } from './output.js';
import { Stopped } from './signals.js';

/** The exit status that a shell reports for a program ended by SIGPIPE (13), such as `yes` in `yes | head`. */
const PIPE_CLOSED = 128 + 13;

/** The exit status if running the same command again may help: EX_TEMPFAIL of sysexits.h. */
const TEMPORARY = 75;

/** Runs the command. Reports a failure on standard error, and sets the exit status. Returns the signal that ended it, if any. */
export async function runCommand(work: () => Promise<unknown>): Promise<NodeJS.Signals | undefined> {
  try {
    await work();
  } catch (error) {
    const cause = error instanceof Unfinished ? error.cause : error;
    process.exitCode = exitCodeOf(cause);
    // The reader closed the pipe, as head does: no message, since this is normal.
    if (process.exitCode === PIPE_CLOSED) return;
    console.error(cause instanceof Stopped ? cause.message : explain(cause));
    if (error instanceof Unfinished) console.error(error.message);
    if (cause instanceof Stopped) return cause.signal;
  }
}

function exitCodeOf(error: unknown): number {
  if (error instanceof Stopped) return 128 + constants.signals[error.signal];
  if (error instanceof OutputError && codeOf(error.cause) === 'EPIPE') return PIPE_CLOSED;
  // Of the cause, since the embedded PostgreSQL has its own messages for the same failures.
  const failure = failureOf(causeOf(error));
  return isFailover(failure) || failure === 'temporary' ? TEMPORARY : 1;
}

/** Returns what to show of an error: its message, or, if it is a bug in this program, the error with its stack. */
export function explain(error: unknown): unknown {
  if (error instanceof UserError) return error.message;
  const failure = failureOf(error);
  if (failure === 'unreachable') {
    return `PostgreSQL can't be reached, or has ended the connection (${reasonOf(error)}). Uncommitted changes were rolled back: run this again once PostgreSQL responds.`;
  }
  const cause: Error & { where?: string } = causeOf(error);
  // Where within PostgreSQL it occurred, such as in which trigger's function.
  const [line] = cause.where?.split('\n', 1) ?? [];
  const where = line ? ` (${escapeHidden(line)})` : '';
  if (failure !== 'ours') return reasonOf(error) + where;
  // Errors of the system and of PostgreSQL have a code; programming errors have none.
  return 'code' in cause ? escapeHidden(cause.message) + where : cause;
}
