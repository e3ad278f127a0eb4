/** The database that a command uses: DATABASE_URL, or an embedded one. */
import { resolve } from 'node:path';
import { type Config, misspelledSettings, readConfig } from '../../config/config.js';
import { parseDatabaseUrl } from '../../config/databaseAddress.js';
import { closeDatabase, type Database, openDatabase } from '../../database/connect.js';
import { isConnectionBroken } from '../../database/errors.js';
import { migrateDatabase } from '../../database/migrations.js';
import { printable } from '../../messages/shorten.js';
import { migrationsFolder } from '../../packageFolder.js';
import { UserError } from '../../userError.js';
import { isEmbeddedPostgres, openEmbeddedPostgres } from '../embeddedPostgres/embeddedPostgres.js';
import { Unfinished } from '../numbers/staging.js';
import { abortable, type Stop } from './stop.js';

interface Access {
  /** Whether the command may create an empty embedded database if there is none yet. */
  mayCreate?: boolean;
}

/**
 * Reads the settings from the environment, and warns on standard error of variables that look like misspelled settings.
 * Removes libpq's variables (`PG*`), which the driver and PostgreSQL's programs would read, too: DATABASE_URL alone
 * says which database is used.
 */
export function readSettings(): Config {
  for (const name of Object.keys(process.env)) if (/^PG/i.test(name)) delete process.env[name];
  for (const line of misspelledSettings(process.env)) console.error(printable(line));
  return readConfig(process.env);
}

/**
 * Runs `use` with the URL of the database, after naming it on standard error: DATABASE_URL, which may not be reachable
 * or migrated yet, or an embedded one that runs until `use` ends.
 */
export async function withDatabaseUrl(
  config: Config,
  stop: Stop,
  use: (url: string) => Promise<void>,
  { mayCreate = false }: Access = {},
): Promise<void> {
  if (config.DATABASE_URL !== undefined) {
    console.error(`database: ${printable(parseDatabaseUrl(config.DATABASE_URL).shown)}`);
    await use(config.DATABASE_URL);
    return;
  }
  const folder = resolve('.data');
  if (!mayCreate && !isEmbeddedPostgres(folder)) {
    throw new UserError(
      `There is no database in ${folder}. Run this in the folder that the service runs in, or set DATABASE_URL to ` +
        'its PostgreSQL. Only serve and import create a database.',
    );
  }
  console.error(`database: embedded PostgreSQL in ${folder}`);
  const embedded = await openEmbeddedPostgres(folder, { stop: stop.requested, hurry: stop.forced });
  try {
    await use(embedded.url);
  } catch (error) {
    if (!isConnectionBroken(error)) throw error;
    const failure = new UserError(`The embedded PostgreSQL closed its connections; see ${embedded.log}`, {
      cause: error,
    });
    throw error instanceof Unfinished ? new Unfinished(error.message, { cause: failure }) : failure;
  } finally {
    await embedded.close();
  }
}

/** Runs `use` with a connection pool for `url`. */
export async function withDatabase(url: string, use: (database: Database) => Promise<void>): Promise<void> {
  const database = openDatabase(url);
  try {
    await use(database);
  } finally {
    await closeDatabase(database);
  }
}

/** Runs `use` with a pool for the database of the environment, once migrated. The first signal abandons it. */
export function withConfiguredDatabase(stop: Stop, use: (database: Database) => Promise<void>): Promise<void> {
  return withMigratedUrl(readSettings(), stop, (url) => abortable(stop.requested, withDatabase(url, use)));
}

/**
 * Runs `use` likewise, and hands it the first signal so that it can report what it has done. The second abandons it.
 */
export function withStoppableDatabase(
  stop: Stop,
  use: (database: Database, signal: AbortSignal) => Promise<void>,
  access?: Access,
): Promise<void> {
  return withMigratedUrl(
    readSettings(),
    stop,
    (url) =>
      abortable(
        stop.forced,
        withDatabase(url, (database) => use(database, stop.requested)),
      ),
    access,
  );
}

/** Migrates the database, then runs `use` as {@link withDatabaseUrl} does. */
export function withMigratedUrl(
  config: Config,
  stop: Stop,
  use: (url: string) => Promise<void>,
  access?: Access,
): Promise<void> {
  const migrateAndUse = async (url: string) => {
    await abortable(stop.requested, migrateDatabase(url, migrationsFolder));
    await use(url);
  };
  return withDatabaseUrl(config, stop, migrateAndUse, access);
}
