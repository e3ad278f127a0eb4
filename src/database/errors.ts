/** The failures of PostgreSQL and of connections to it: one table, which requests, `serve`, steps and commands use. */
import postgres from 'postgres';
import { escapeHidden } from '../messages/shown.js';
import { UserError } from '../userError.js';

/** The database could not be read in time; a retry may help. Clients see the message; only operators see the cause, if known. */
export class DatabaseUnavailable extends Error {}

/**
 * What a failure means, and what follows from it:
 *
 * | | Meaning | A read of a request | `serve` at its start | A step |
 * |---|---|---|---|---|
 * | `unreachable` | PostgreSQL can't be reached, or has ended the connection | is retried; a 503 at its deadline | waits | is retried for a minute |
 * | `refused` | no connection before the operator changes something | is retried; a 503 at its deadline | ends | ends |
 * | `missing` | the database does not exist | is retried; a 503 at its deadline | waits | ends |
 * | `standby` | the server is read-only | a 503 | waits | is retried for a minute |
 * | `temporary` | PostgreSQL did not complete the statement | a 503 | waits | is halved if canceled, retried if locks or other writers explain it; else ends |
 * | `unusable` | the schema or a privilege is missing | a 503 | ends | ends |
 * | `hidden` | row-level security would hide rows (`row_security` in sessionSettings.ts) | a 503 | ends | ends |
 * | `ours` | this program or its user is at fault | a 500 | ends | ends |
 */
export type Failure = 'unreachable' | 'refused' | 'missing' | 'standby' | 'temporary' | 'unusable' | 'hidden' | 'ours';

interface Row {
  failure: Failure;
  /** Codes of PostgreSQL, the driver, TLS, or `connection.ts`. */
  codes: RegExp;
  /** Only for errors with this message, which PostgreSQL may have translated (`lc_messages`). */
  message?: RegExp;
  /** Only for errors that this function of PostgreSQL reports, whatever the language. */
  routine?: string;
  advice?: string;
}

/** Codes of PostgreSQL: for a connection beyond max_connections, a canceled statement, and a lock timeout or a deadlock. */
export const TOO_MANY_CONNECTIONS = '53300';
export const CANCELED = '57014';
export const LOCK_FAILED = /^(55P03|40P01)$/;

/** The first row that fits an error applies. Errors of sockets that no row has are `unreachable`, all others `ours`. */
const TABLE: readonly Row[] = [
  {
    failure: 'refused',
    codes: /^08P01$/,
    message: /^unsupported startup parameter/i,
    advice:
      'the pooler in DATABASE_URL does not accept session settings; name the host of PostgreSQL itself, or have ' +
      'PgBouncer ignore and set them as deploy/pgbouncer does',
  },
  {
    failure: 'refused',
    codes: /^\w{5}$/,
    message:
      /pg_hba\.conf.*, (no encryption|SSL off)|\b(SSL|TLS) (connections? )?(is |are )?required|requires (SSL|TLS)|connection is insecure/i,
    advice: 'add sslmode=require to DATABASE_URL, or better sslmode=verify-full',
  },
  // PgBouncer's code for most of its own errors. Those of PostgreSQL that it forwards may be temporary.
  {
    failure: 'refused',
    codes: /^08P01$/,
    message: /^(no such (database|user)|(\S+ )?authentication failed|(unix socket )?login rejected|not allowed)/i,
  },
  // A wrong password, an unknown role, and a rule of pg_hba.conf.
  { failure: 'refused', codes: /^28\w{3}$/ },
  {
    failure: 'refused',
    codes: /^(CERT_(UNTRUSTED|SIGNATURE_FAILURE)|UNABLE_TO_\w+|(DEPTH_ZERO_)?SELF_SIGNED_CERT\w*|INVALID_CA)$/,
    advice: "PostgreSQL's certificate is not trusted; add sslrootcert=FILE, with its authority's, to DATABASE_URL",
  },
  {
    failure: 'refused',
    codes:
      /^(CERT_\w+|CRL_\w+|ERR_TLS_CERT_ALTNAME_INVALID|(TLS|SCRAM)_NOT_OFFERED|KERBEROS_REQUIRED|SASL_SIGNATURE_MISMATCH)$/,
  },
  // Ends of the connection, and the codes of the driver.
  { failure: 'unreachable', codes: /^(08\w{3}|25P0[34]|53300|57P0[1-5]|CONNECTION_\w+|CONNECT_TIMEOUT)$/ },
  { failure: 'missing', codes: /^3D000$/ },
  { failure: 'standby', codes: /^25006$/, advice: 'DATABASE_URL must lead to a server that accepts writes' },
  // Canceled, a lock timeout, out of resources, conflicts, deadlocks, errors of the server or its disk.
  { failure: 'temporary', codes: /^(40001|40P01|53\w{3}|55000|55006|55P03|57014|58\w{3}|XX\w{3})$/ },
  // If PostgreSQL ends a COPY from this program, the driver drops that error, and the next statement fails with this one.
  { failure: 'temporary', codes: /^25P02$/, advice: 'the log of PostgreSQL has the error of the previous statement' },
  {
    failure: 'hidden',
    codes: /^42501$/,
    routine: 'check_enable_rls',
    advice: 'give the role in DATABASE_URL the attribute BYPASSRLS, or disable row-level security for the table',
  },
  // A schema, table, column, function or type that does not exist, and a missing privilege.
  { failure: 'unusable', codes: /^(3F000|42501|42703|42704|42883|42P01)$/ },
];

/** Errors with which connections ended, such as those of their sockets, whatever their code. */
export const endsOfConnections = new WeakSet<Error>();

/** Returns what an error means; for an error with a cause, what its cause means. */
export function failureOf(error: unknown): Failure {
  if (error instanceof UserError) return 'ours';
  const cause = causeOf(error);
  return rowOf(cause)?.failure ?? (endsOfConnections.has(cause) ? 'unreachable' : 'ours');
}

/** Returns whether a failure keeps connections from being opened or used, so that each statement would fail. */
export function isOutage(failure: Failure): boolean {
  return failure === 'unreachable' || failure === 'refused' || failure === 'missing';
}

/** Returns whether PostgreSQL may be restarting or failing over, so that a retry on a new connection may succeed. */
export function isFailover(failure: Failure): boolean {
  return failure === 'unreachable' || failure === 'standby';
}

/** Returns the error's messages, one for each address of the host that Node tried, and advice. */
export function reasonOf(error: unknown): string {
  const cause = causeOf(error);
  const { errors = [cause] } = cause as { errors?: Error[] };
  const messages = errors.map(({ message }) => message);
  const advice = rowOf(cause)?.advice;
  return escapeHidden(messages.join(', ') + (advice ? `: ${advice}` : ''));
}

function rowOf(error: Error): Row | undefined {
  const code = codeOf(error);
  return TABLE.find(
    ({ codes, message, routine }) =>
      codes.test(code) &&
      (message?.test(error.message) ?? true) &&
      (routine === undefined || (error as Partial<postgres.PostgresError>).routine === routine),
  );
}

/** Returns the error code of the system, the driver or PostgreSQL; empty if there is none. */
export function codeOf(error: unknown): string {
  const { code } = error as { code?: unknown };
  return typeof code === 'string' ? code : '';
}

/** Returns the error of the database or the driver, without Drizzle's wrapper, which repeats the statement's values. */
export function causeOf(error: unknown): Error {
  const { cause } = error as { cause?: unknown };
  if (cause instanceof Error) return causeOf(cause);
  return error instanceof Error ? error : new Error(String(error));
}

/**
 * Returns the part of an error that may be logged. PostgreSQL quotes values in messages, details and contexts, so these
 * are left out; the code and the reporting routine identify the message.
 */
export function withoutValues(error: Error): object {
  if (!(error instanceof postgres.PostgresError)) return error;
  const { name: type, code, severity, routine, table_name, column_name, constraint_name, message, stack = '' } = error;
  const names = { table_name, column_name, constraint_name };
  return { type, code, severity, routine, ...names, stack: stack.replace(message, code) };
}
