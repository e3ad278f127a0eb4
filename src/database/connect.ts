/** The connection to PostgreSQL: opened here, closed here. */
import { drizzle } from 'drizzle-orm/postgres-js';
import postgres from 'postgres';
import { addressOf } from './address.js';
import * as schema from './schema.js';
import { createSockets } from './sockets.js';

export type Database = ReturnType<typeof openDatabase>;

/** The array types of parameters, by their OIDs, which are built into PostgreSQL and never change. */
const arrayTypes = Object.fromEntries(
  Object.entries({ textArray: 1009, integerArray: 1007, uuidArray: 2951 }).map(([name, to]) => [
    name,
    { to, from: [], serialize: arrayLiteral, parse: (text: string) => text },
  ]),
);

/** The literals of arrays: several statements of a page use the same ones, and so do many requests with one key. */
const literals = new WeakMap<readonly unknown[], string>();

function arrayLiteral(value: unknown): string {
  if (!Array.isArray(value)) return String(value);
  const known = literals.get(value);
  if (known !== undefined) return known;
  const literal = `{${value.map((each) => (each === null ? 'NULL' : `"${String(each).replace(/["\\]/g, '\\$&')}"`))}}`;
  literals.set(value, literal);
  return literal;
}

/** Seconds for a connection to be made. */
const CONNECT_TIMEOUT = 1.5;
/** The longest delay between attempts to open a connection, in seconds, after failures. */
const MAX_RECONNECT_DELAY = 0.5;

interface Options {
  connections?: number;
  /** Milliseconds after which PostgreSQL itself cancels a statement, and a silent connection is dead soon after; 0 for never. */
  statementTimeout?: number;
}

/**
 * How PostgreSQL plans what the service asks.
 * @public test/support/explain.ts plans with the same settings
 */
export const planningOptions = {
  // The queries are written so that one plan fits all values; planning each execution costs more than it gains.
  plan_cache_mode: 'force_generic_plan',
  // 'off', because postgres.js drops false. A range scan ends after a few rows; a bitmap would read its whole range.
  enable_bitmapscan: 'off',
  // No query here should read a whole table, no matter how few rows the statistics promise.
  enable_seqscan: 'off',
  // Nor a whole range to sort it, where an index has the order: of a table that was analyzed before its first import was
  // committed, the planner believes that there is one row.
  enable_sort: 'off',
  jit: 'off',
} as const;

/** Opens a pool of `connections` on `url`; nothing is sent before the first query. */
export function openDatabase(url: string, { connections = 10, statementTimeout = 0 }: Options = {}) {
  const address = addressOf(url);
  const sockets = createSockets(address, statementTimeout);
  const { connection, ...options } = address.options as postgres.Options<typeof arrayTypes>;
  const client = postgres({
    ...options,
    max: connections,
    onnotice: () => {},
    // postgres.js would query each new connection for the array types, and end the process if it breaks meanwhile.
    fetch_types: false,
    types: arrayTypes,
    connect_timeout: CONNECT_TIMEOUT,
    // A transaction of a command may take longer than the driver lets a connection live by default.
    max_lifetime: null,
    backoff: (attempts: number) => Math.min(0.025 * 2 ** attempts, MAX_RECONNECT_DELAY),
    socket: () => sockets.open(),
    connection: {
      // Not PostgreSQL's default, "$user", public: a schema with the role's name would hide the tables, or receive them.
      search_path: 'public',
      // Whatever the database or the role has as its default. A stricter isolation makes writers fail that come at once, as
      // those that count requests. postgres.js drops 0.
      default_transaction_isolation: 'read committed',
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
  return Object.assign(drizzle(client, { schema }), { url, sockets });
}

/** Closes the pool; what is still running after `timeout` seconds is cut off. */
export async function closeDatabase({ $client, sockets }: Database, timeout = 5): Promise<void> {
  await $client.end({ timeout });
  sockets.close();
}
