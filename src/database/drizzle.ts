/**
 * Drizzle, loaded by `require`: Node 22 and later take half a second of CPU time to link its ES modules. Types that are not
 * here come from the package itself.
 */
import { createRequire } from 'node:module';
import type * as Drizzle from 'drizzle-orm';
import type * as Migrator from 'drizzle-orm/migrator';
import type * as PgCore from 'drizzle-orm/pg-core';
import type * as PostgresJs from 'drizzle-orm/postgres-js';

const load = createRequire(import.meta.url);

export const { and, asc, Column, fillPlaceholders, getTableName, inArray, is, isNull, sql, Table } = load(
  'drizzle-orm',
) as typeof Drizzle;
export type Column = Drizzle.Column;
export type Table = Drizzle.Table;

export const pg = load('drizzle-orm/pg-core') as typeof PgCore;
export const { readMigrationFiles } = load('drizzle-orm/migrator') as typeof Migrator;
export const { drizzle } = load('drizzle-orm/postgres-js') as typeof PostgresJs;
