/** The settings of every session of PostgreSQL, which override the defaults of its role and database. */

/** @public test/support/explain.ts plans with the same settings */
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

/** All that each session sets, so that `options` in DATABASE_URL can't. */
export const sessionSettings = {
  // With PostgreSQL's default, "$user", public, a schema with the role's name would hide the tables, or receive them.
  search_path: 'public',
  // Otherwise, rows that row-level security hides would read as no data.
  row_security: 'off',
  // These override the defaults of the database and the role. With a stricter isolation level, concurrent writers
  // would fail, such as those that count requests.
  default_transaction_isolation: 'read committed',
  // Some sessions have other limits.
  statement_timeout: '0',
  lock_timeout: '0',
  // PostgreSQL's own probes: otherwise, a session whose connection was cut silently stays for two hours.
  tcp_keepalives_idle: '10',
  tcp_keepalives_interval: '5',
  tcp_keepalives_count: '3',
  standard_conforming_strings: 'on',
  array_nulls: 'on',
  extra_float_digits: '1',
  DateStyle: 'ISO, MDY',
  TimeZone: 'UTC',
  ...planningOptions,
} as const;
