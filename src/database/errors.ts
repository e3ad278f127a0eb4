/** Classifies the errors of the driver and of PostgreSQL. */
import postgres from 'postgres';
import { UserError } from '../userError.js';

/** The database could not be read in time; a retry may help. The message is shown to the client. */
export class DatabaseUnavailable extends Error {}

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

/** PostgreSQL's code for a connection beyond max_connections. */
export const TOO_MANY_CONNECTIONS = '53300';
/** PostgreSQL's code for a database that does not exist. */
export const NO_DATABASE = '3D000';
/** PostgreSQL's code for a write on a read-only server. */
export const READ_ONLY = '25006';
/** PostgreSQL's code for a missing privilege. */
export const INSUFFICIENT_PRIVILEGE = '42501';
/**
 * PostgreSQL's codes for a schema, table, column, function or type that does not exist or that the role may not use:
 * the operator has to migrate the database.
 */
export const NOT_MIGRATED = /^(3F000|42P01|42703|42883|42704|42501)$/;

/** The codes of PostgreSQL, the driver and the system for a connection that broke or can't be opened. */
const CONNECTION_BROKEN =
  /^(CONNECTION_(CLOSED|DESTROYED|ENDED)|CONNECT_TIMEOUT|ECONN\w+|EPIPE|ENOENT|ENOTFOUND|EAI_AGAIN|EADDRNOTAVAIL|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|57P0[1-5]|08\w{3}|53300)$/;

/** PgBouncer's code for most of its own errors. */
const POOLER_ERROR = '08P01';
/** Errors of PgBouncer itself that no retry changes. Errors of PostgreSQL that it forwards may be temporary. */
const REFUSED_BY_POOLER =
  /^(unsupported startup parameter|no such (database|user)|(SSL|TLS) .*required|(\S+ )?authentication failed|(unix socket )?login rejected|not allowed)/i;

/** Returns whether a pooler in front of PostgreSQL has refused the connection for a permanent reason. */
export function isRefusedByPooler(error: Error): boolean {
  return codeOf(error) === POOLER_ERROR && REFUSED_BY_POOLER.test(error.message);
}

/**
 * Returns whether PostgreSQL can't be reached or has ended the connection, so that a retry may help. Node's file errors
 * have some of the same codes, but their messages begin with the code.
 */
export function isConnectionBroken(error: unknown): boolean {
  const cause = causeOf(error);
  const code = codeOf(cause);
  if (error instanceof UserError || isRefusedByPooler(cause)) return false;
  return CONNECTION_BROKEN.test(code) && !cause.message.startsWith(code);
}

/**
 * PostgreSQL's codes for temporary failures: statement canceled, lock timeout, out of resources, login refused,
 * conflict with a replica's recovery, deadlock.
 */
export const TEMPORARY_FAILURE = /^(57014|55P03|55000|53\w{3}|58\w{3}|28\w{3}|3D000|40001|40P01)$/;
