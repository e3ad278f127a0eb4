/** How a command reports what made it fail, and the exit status. */
import { DrizzleQueryError } from 'drizzle-orm';
import { causeOf, codeOf, isConnectionBroken } from '../database/errors.js';
import { printable } from '../messages/shorten.js';
import { Unfinished } from '../numbers/staging.js';
import { UserError } from '../userError.js';
import { OutputError } from './output.js';
import { Stopped } from './stop.js';

/** What a shell reports for a program that SIGPIPE (13) ends, as `yes | head` does. */
const READER_HAS_GONE = 128 + 13;

/** Does the work of the process, says on standard error what made it fail, and sets the exit status. */
export async function runToItsEnd(work: () => Promise<unknown>): Promise<void> {
  // Node ends once nothing is left that could happen, even if something is still awaited, with status 13 and no word.
  const onNothingLeft = () => {
    console.error('The command stopped halfway: it waits for what will never happen. This is a fault of the program.');
    process.exitCode = 1;
  };
  process.once('beforeExit', onNothingLeft);
  try {
    await work();
  } catch (error) {
    reportFailure(error);
  } finally {
    process.off('beforeExit', onNothingLeft);
  }
}

function reportFailure(error: unknown): void {
  process.exitCode = 1;
  // The reader of the pipe has seen enough: nothing went wrong.
  if (error instanceof OutputError && codeOf(error.cause) === 'EPIPE') process.exitCode = READER_HAS_GONE;
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

/** What servers and poolers say when they refuse a connection, and what helps. */
const REFUSALS: readonly [RegExp, string][] = [
  [
    /^unsupported startup parameter/i,
    'the pooler in DATABASE_URL does not take the settings of a session; name the host of PostgreSQL itself, or have ' +
      'PgBouncer ignore and set them as deploy/pgbouncer does',
  ],
  [
    /pg_hba\.conf.*, (no encryption|SSL off)|\b(SSL|TLS) (connections? )?(is |are )?required|requires (SSL|TLS)|connection is insecure/i,
    'add sslmode=require to DATABASE_URL, or better sslmode=verify-full',
  ],
];

/** Returns the messages of an error: Node gives one for each address of a host that it has tried. */
export function reasonsOf(error: unknown): string {
  const cause = causeOf(error);
  const { errors = [cause] } = cause as { errors?: unknown[] };
  const messages = errors.map((each) => (each as Error).message.replace(/^write CONNECTION_\w+/, 'connection closed:'));
  return printable(messages.join(', '));
}

/** Returns what a user needs to see of an error: its message, or all of it if it is a bug in this program. */
export function explain(error: unknown): unknown {
  if (error instanceof UserError) return error.message;
  if (error instanceof DrizzleQueryError) return explain(error.cause);
  if (error instanceof Error && UNTRUSTED.test(codeOf(error))) {
    return `the certificate of PostgreSQL is not trusted (${error.message}); name that of its authority by sslrootcert=FILE in DATABASE_URL`;
  }
  const advice = REFUSALS.find(([pattern]) => codeOf(error) && pattern.test((error as Error).message))?.[1];
  if (advice) return printable(`${(error as Error).message}: ${advice}`);
  if (isConnectionBroken(error)) {
    return `PostgreSQL can't be reached, or has ended the connection (${reasonsOf(error)}). What was not committed is undone: run this again once PostgreSQL answers.`;
  }
  // Errors of the system and of PostgreSQL have a code; programming errors have none.
  return error instanceof Error && 'code' in error ? printable(error.message) : error;
}
