/** The driver of a connection, postgres.js, and the settings of its session. */
import type { Socket } from 'node:net';
import postgres from 'postgres';
import type { DatabaseAddress } from '../config/databaseAddress.js';
import { sessionSettings } from '../config/sessionSettings.js';

export type Driver = ReturnType<typeof createDriver>;

/** Time limits of each statement, in milliseconds, at which PostgreSQL cancels it; 0 for none. */
export interface Limits {
  statementTimeout?: number;
  /** Of each of its waits for a lock. */
  lockTimeout?: number;
}

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

/** Creates a driver with one socket, which is opened at its first statement. `name` is shown in `pg_stat_activity`. */
export function createDriver(
  address: DatabaseAddress,
  { statementTimeout = 0, lockTimeout = 0 }: Limits,
  name: string,
  openSocket: () => Promise<Socket>,
) {
  const { connection, ...options } = address.options as postgres.Options<typeof arrayTypes>;
  // Every option is given, so that PG* variables and the driver's defaults have no effect. The exception is
  // target_session_attrs, which can't be unset here: commands remove PG* variables at startup.
  return postgres({
    ...options,
    max: 1,
    max_pipeline: 100,
    idle_timeout: 0,
    // Seconds of silence before the system probes a connection. Node has it probe ten times, a second apart, so that a
    // connection that was cut silently breaks after 20 s, unless something sent on it was not acknowledged.
    keep_alive: 10,
    debug: false,
    publications: 'alltables',
    transform: { undefined: undefined },
    onnotice: () => {},
    // postgres.js would query each new connection for the array types, and end the process if it breaks meanwhile.
    fetch_types: false,
    types: arrayTypes,
    // The connection watches how long a login takes.
    connect_timeout: 0,
    // A command's transaction may take longer than the driver's default lifetime of a connection.
    max_lifetime: null,
    backoff: () => 0,
    socket: openSocket,
    connection: {
      ...sessionSettings,
      // Strings, because postgres.js drops 0.
      statement_timeout: String(statementTimeout),
      lock_timeout: String(lockTimeout),
      ...connection,
      application_name: name,
    },
  } as postgres.Options<typeof arrayTypes>);
}

/** Returns settings for each transaction, since a pooler may set the limits of pages for all (docs/operations.md). */
export async function settingsOfTransactions(sql: Driver, { statementTimeout = 0 }: Limits): Promise<string> {
  const [server] = await sql<[{ version: number; isWindows: boolean }]>`
    SELECT current_setting('server_version_num')::int AS version,
      current_setting('dynamic_shared_memory_type') = 'windows' AS "isWindows"`;
  return [
    `SET LOCAL statement_timeout = ${statementTimeout}`,
    // PostgreSQL has this setting since version 17.
    ...(server.version >= 170_000 ? ['SET LOCAL transaction_timeout = 0'] : []),
    // Ends a statement soon after its client exits. PostgreSQL on Windows does not support the setting.
    ...(server.isWindows ? [] : [`SET LOCAL client_connection_check_interval = '100ms'`]),
  ].join(';');
}
