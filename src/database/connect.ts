/** Opens and closes connections. */
import { drizzle } from 'drizzle-orm/postgres-js';
import postgres from 'postgres';
import { parseDatabaseUrl } from '../config/databaseAddress.js';
import * as schema from './schema.js';
import { ConnectionSocket } from './socket.js';

export type Database = ReturnType<typeof openDatabase>;

/** The array types of parameters, with their OIDs, which are built into PostgreSQL and never change. */
const arrayTypes = Object.fromEntries(
  Object.entries({ textArray: 1009, integerArray: 1007, uuidArray: 2951 }).map(([name, oid]) => [
    name,
    { to: oid, from: [], serialize: arrayLiteral, parse: (text: string) => text },
  ]),
);

/** Returns an array as the literal that PostgreSQL reads, such as `{"a","b"}`; a literal is returned unchanged. */
function arrayLiteral(value: unknown): string {
  return Array.isArray(value) ? `{${value.map(arrayElement).join(',')}}` : String(value);
}

function arrayElement(value: unknown): string {
  if (value === null) return 'NULL';
  const text = String(value);
  // Few elements need escapes, so testing first is several times as fast.
  return `"${/["\\]/.test(text) ? text.replace(/["\\]/g, '\\$&') : text}"`;
}

/**
 * The planner settings of every connection.
 * @public test/support/explain.ts plans with the same settings
 */
export const planningOptions = {
  // The queries are written so that one plan fits all values; planning each execution costs more than it gains.
  plan_cache_mode: 'force_generic_plan',
  // 'off', because postgres.js drops false. A range scan ends after a few rows; a bitmap would read its whole range.
  enable_bitmapscan: 'off',
  // Even if the planner estimates one row, because a table was analyzed before its first import was committed, it must
  // not read a whole table, or sort a whole range if an index has the order.
  enable_seqscan: 'off',
  enable_sort: 'off',
  jit: 'off',
} as const;

/**
 * Returns a connection to `url`; nothing is sent before its first statement. It is a driver with a single socket, and is not
 * opened again: once the socket breaks, all statements reject, since postgres.js would keep what it knew of a broken
 * connection. `onBroken` is called in the event that breaks it. PostgreSQL cancels a statement after `statementTimeout`
 * milliseconds, or if it waits for a lock for `lockTimeout`, and a connection that stays silent for longer than a statement may
 * take is considered dead; 0 turns a limit off.
 */
export function openDatabase(
  url: string,
  { statementTimeout = 0, lockTimeout = 0, onBroken = (_reason: Error) => {} } = {},
) {
  const address = parseDatabaseUrl(url);
  const socket = new ConnectionSocket(address, statementTimeout, (reason) => {
    void client.end({ timeout: 0 });
    onBroken(reason);
  });
  const { connection, ...options } = address.options as postgres.Options<typeof arrayTypes>;
  // Every option is given, so that PG* variables and the driver's defaults have no effect. The exception is
  // target_session_attrs, which can't be unset here: commands remove PG* variables at startup.
  const client = postgres({
    ...options,
    max: 1,
    max_pipeline: 100,
    idle_timeout: 0,
    // Seconds of silence before the system probes a connection.
    keep_alive: 60,
    debug: false,
    publications: 'alltables',
    transform: { undefined: undefined },
    onnotice: () => {},
    // postgres.js would query each new connection for the array types, and end the process if it breaks meanwhile.
    fetch_types: false,
    types: arrayTypes,
    // The socket watches how long a login takes.
    connect_timeout: 0,
    // A command's transaction may take longer than the driver's default lifetime of a connection.
    max_lifetime: null,
    backoff: () => 0,
    socket: () => socket.open(),
    connection: {
      // With PostgreSQL's default, "$user", public, a schema with the role's name would hide the tables, or receive
      // them.
      search_path: 'public',
      // Otherwise, rows that row-level security hides would read as no data.
      row_security: 'off',
      // These override the defaults of the database and the role. With a stricter isolation level, concurrent writers
      // would fail, such as those that count requests.
      default_transaction_isolation: 'read committed',
      // '0', because postgres.js drops 0.
      statement_timeout: String(statementTimeout),
      lock_timeout: String(lockTimeout),
      idle_in_transaction_session_timeout: '0',
      idle_session_timeout: '0',
      standard_conforming_strings: 'on',
      array_nulls: 'on',
      extra_float_digits: '1',
      DateStyle: 'ISO, MDY',
      TimeZone: 'UTC',
      ...planningOptions,
      ...connection,
      application_name: `${address.applicationName} ${process.pid}`,
    },
  } as postgres.Options<typeof arrayTypes>);
  return Object.assign(drizzle(client, { schema }), { url, socket });
}

/** Closes the connection. Statements that are still running after `timeout` seconds are cut off. */
export async function closeDatabase(
  { $client, socket }: Pick<Database, '$client' | 'socket'>,
  timeout = 5,
): Promise<void> {
  await $client.end({ timeout });
  socket.destroy();
}
