/** The database that a command works on: DATABASE_URL, or an embedded one. */
import { resolve } from 'node:path';
import { type Config, misspelledSettings, readConfig } from '../config.js';
import { addressOf } from '../database/address.js';
import { closeDatabase, type Database, openDatabase } from '../database/connect.js';
import { isConnectionBroken } from '../database/errors.js';
import { migrateDatabase } from '../database/migrations.js';
import { isEmbeddedPostgres, openEmbeddedPostgres } from '../embeddedPostgres/embeddedPostgres.js';
import { printable } from '../messages/shorten.js';
import { migrationsFolder } from '../packageFolder.js';
import { UserError } from '../userError.js';
import { stop, unlessStopped } from './stop.js';

interface Access {
  /** Whether the command may create an empty embedded database if there is none yet. */
  mayCreate?: boolean;
}

/**
 * Reads the settings from the environment; names on standard error each variable that looks like a misspelled one. Removes
 * the variables of libpq, which the driver and PostgreSQL's programs would read as well: nothing but DATABASE_URL says where
 * the database is and how it is reached.
 */
export function readSettings(): Config {
  for (const name of Object.keys(process.env)) if (/^PG/i.test(name)) delete process.env[name];
  for (const line of misspelledSettings(process.env)) console.error(printable(line));
  return readConfig(process.env);
}

/**
 * Runs `use` with the address of a database, which may not be reachable or migrated yet: DATABASE_URL, or an embedded one
 * that runs until `use` ends. Names it on standard error.
 */
export async function withDatabaseUrl(
  config: Config,
  use: (url: string) => Promise<void>,
  { mayCreate = false }: Access = {},
): Promise<void> {
  if (config.DATABASE_URL !== undefined) {
    console.error(`database: ${printable(addressOf(config.DATABASE_URL).shown)}`);
    await use(config.DATABASE_URL);
    return;
  }
  const folder = resolve('.data');
  if (!mayCreate && !isEmbeddedPostgres(folder)) {
    throw new UserError(
      `There is no database in ${folder}. Run this in the folder that the service runs in, or set DATABASE_URL to ` +
        'its PostgreSQL. Only serve and import make a new database.',
    );
  }
  console.error(`database: embedded PostgreSQL in ${folder}`);
  const embedded = await openEmbeddedPostgres(folder, { stop: stop.asked, hurry: stop.now });
  try {
    await use(embedded.url);
  } catch (error) {
    if (!isConnectionBroken(error)) throw error;
    throw new UserError(`The embedded PostgreSQL has ended its connections; ${embedded.log} says why.`, {
      cause: error,
    });
  } finally {
    await embedded.close();
  }
}

/** Runs `use` with a pool on `url`. */
export async function withDatabase(url: string, use: (database: Database) => Promise<void>): Promise<void> {
  const database = openDatabase(url);
  try {
    await use(database);
  } finally {
    await closeDatabase(database);
  }
}

/** Runs `use` with a pool on the migrated database that the environment names; a signal ends it. */
export function withConfiguredDatabase(use: (database: Database) => Promise<void>, access?: Access): Promise<void> {
  return withMigratedUrl(readSettings(), (url) => unlessStopped(stop.asked, withDatabase(url, use)), access);
}

/** Does so for a command that ends by itself at the first signal, to report what it has done; the second one ends it. */
export function withStoppableDatabase(
  use: (database: Database, signal: AbortSignal) => Promise<void>,
  access?: Access,
): Promise<void> {
  return withMigratedUrl(
    readSettings(),
    (url) =>
      unlessStopped(
        stop.now,
        withDatabase(url, (database) => use(database, stop.asked)),
      ),
    access,
  );
}

/** Runs `use` as {@link withDatabaseUrl} does, once the database is migrated. */
export function withMigratedUrl(config: Config, use: (url: string) => Promise<void>, access?: Access): Promise<void> {
  const migrateAndUse = async (url: string) => {
    await unlessStopped(stop.asked, migrateDatabase(url, migrationsFolder));
    await use(url);
  };
  return withDatabaseUrl(config, migrateAndUse, access);
}
