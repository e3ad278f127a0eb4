/** Opens and closes connection pools. */
import { drizzle } from 'drizzle-orm/postgres-js';
import postgres from 'postgres';
import { parseDatabaseUrl } from '../config/databaseAddress.js';
import * as schema from './schema.js';
import { createSockets } from './sockets.js';

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

/** Seconds within which a connection must be established. */
const CONNECT_TIMEOUT = 1.5;
/** The longest delay between attempts to open a connection, in seconds, after failures. */
const MAX_RECONNECT_DELAY = 0.5;

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
 * Opens a pool of at most `connections` connections to `url`; nothing is sent before the first query. Each connection is
 * sent at most `statementsAtOnce` statements before it responds. PostgreSQL cancels a statement after `statementTimeout`
 * milliseconds, and a connection that stays silent for longer is considered dead; 0 turns both off.
 */
export function openDatabase(url: string, { connections = 10, statementsAtOnce = 100, statementTimeout = 0 } = {}) {
  const address = parseDatabaseUrl(url);
  const sockets = createSockets(address, statementTimeout);
  const { connection, ...options } = address.options as postgres.Options<typeof arrayTypes>;
  // Every option is given, so that PG* variables and the driver's defaults have no effect. The exception is
  // target_session_attrs, which can't be unset here: commands remove PG* variables at startup.
  const client = postgres({
    ...options,
    max: connections,
    // The driver does not count the first statement.
    max_pipeline: statementsAtOnce - 1,
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
    connect_timeout: CONNECT_TIMEOUT,
    // A command's transaction may take longer than the driver's default lifetime of a connection.
    max_lifetime: null,
    backoff: (attempts: number) => Math.min(0.025 * 2 ** attempts, MAX_RECONNECT_DELAY),
    socket: () => sockets.open(),
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
      lock_timeout: '0',
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
  removeEmptyRows(client);
  return Object.assign(drizzle(client, { schema }), { url, sockets });
}

/**
 * Makes the results of `unsafe`, which Drizzle uses as well, begin with their first row. If a response breaks off,
 * postgres.js 3.4.9 goes on counting its rows: the next result would begin with as many empty places. So a tagged statement
 * may only be the first on a connection, or one of a session, which ends with its first error.
 */
function removeEmptyRows(client: postgres.Sql): void {
  const { unsafe } = client;
  client.unsafe = ((...parameters: Parameters<typeof unsafe>) => {
    const query = unsafe(...parameters) as ReturnType<typeof unsafe> & { resolve(rows: unknown): void };
    const { resolve } = query;
    query.resolve = (rows) => {
      if (Array.isArray(rows) && rows.length > 0 && !(0 in rows)) rows.splice(0, Number(Object.keys(rows)[0]));
      resolve(rows);
    };
    return query;
  }) as typeof unsafe;
}

/** Closes the pool. Statements that are still running after `timeout` seconds are cut off. */
export async function closeDatabase({ $client, sockets }: Database, timeout = 5): Promise<void> {
  await $client.end({ timeout });
  sockets.close();
}
