/** How a command reports its failure, and its exit status. */
import { DrizzleQueryError } from 'drizzle-orm';
import { causeOf, codeOf, isConnectionBroken } from '../../database/errors.js';
import { escapeHidden } from '../../messages/shown.js';
import { UserError } from '../../userError.js';
import { Unfinished } from '../numbers/staging.js';
import { OutputError } from './output.js';
import { Stopped } from './signals.js';

/** The exit status that a shell reports for a program ended by SIGPIPE (13), such as `yes` in `yes | head`. */
const PIPE_CLOSED = 128 + 13;

/** Runs the command. Reports a failure on standard error, and sets the exit status. */
export async function runCommand(work: () => Promise<unknown>): Promise<void> {
  // Once no events are pending, Node exits silently with status 13, even if a promise is still awaited.
  const reportPendingWork = () => {
    console.error('exited with work still pending. This is a bug.');
    process.exitCode = 1;
  };
  process.once('beforeExit', reportPendingWork);
  try {
    await work();
  } catch (error) {
    reportFailure(error);
  } finally {
    process.off('beforeExit', reportPendingWork);
  }
}

function reportFailure(error: unknown): void {
  process.exitCode = 1;
  // The reader closed the pipe, as head does: no message, since this is normal.
  if (error instanceof OutputError && codeOf(error.cause) === 'EPIPE') process.exitCode = PIPE_CLOSED;
  else if (error instanceof Unfinished) {
    console.error(error.cause instanceof Stopped ? error.cause.message : explain(error.cause));
    console.error(error.message);
  } else if (error instanceof Stopped) {
    console.error(error.message);
    process.exitCode = error.exitCode;
  } else console.error(explain(error));
}

/** OpenSSL's codes for a certificate that it does not trust, as Node names them. */
const UNTRUSTED = /^(CERT_|CRL_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|INVALID_CA$)/;

/** Messages with which servers and poolers refuse a connection, and what to do about them. */
const REFUSALS: readonly [RegExp, string][] = [
  [
    /^unsupported startup parameter/i,
    'the pooler in DATABASE_URL does not accept session settings; name the host of PostgreSQL itself, or have ' +
      'PgBouncer ignore and set them as deploy/pgbouncer does',
  ],
  [
    /pg_hba\.conf.*, (no encryption|SSL off)|\b(SSL|TLS) (connections? )?(is |are )?required|requires (SSL|TLS)|connection is insecure/i,
    'add sslmode=require to DATABASE_URL, or better sslmode=verify-full',
  ],
];

/** Returns the error's messages, separated by commas: one for each address of the host that Node tried. */
export function reasonsOf(error: unknown): string {
  const cause = causeOf(error);
  const { errors = [cause] } = cause as { errors?: unknown[] };
  const messages = errors.map((failure) =>
    (failure as Error).message.replace(/^write CONNECTION_\w+/, 'connection closed:'),
  );
  return escapeHidden(messages.join(', '));
}

/** Returns what to show of an error: its message, or, if it is a bug in this program, the error with its stack. */
export function explain(error: unknown): unknown {
  if (error instanceof UserError) return error.message;
  if (error instanceof DrizzleQueryError) return explain(error.cause);
  if (error instanceof Error && UNTRUSTED.test(codeOf(error))) {
    return `the certificate of PostgreSQL is not trusted (${error.message}); add sslrootcert=FILE, with its authority's certificate, to DATABASE_URL`;
  }
  const advice = REFUSALS.find(([pattern]) => codeOf(error) && pattern.test((error as Error).message))?.[1];
  if (advice) return escapeHidden(`${(error as Error).message}: ${advice}`);
  if (isConnectionBroken(error)) {
    return `PostgreSQL can't be reached, or has ended the connection (${reasonsOf(error)}). Uncommitted changes were rolled back: run this again once PostgreSQL responds.`;
  }
  // Errors of the system and of PostgreSQL have a code; programming errors have none.
  return error instanceof Error && 'code' in error ? escapeHidden(error.message) : error;
}
