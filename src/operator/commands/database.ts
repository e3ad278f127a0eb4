/** The database that a command uses: DATABASE_URL, or an embedded one. */
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Config, readConfig } from '../../config/config.js';
import { addressOf } from '../../config/databaseAddress.js';
import { failureOf } from '../../database/errors.js';
import { escapeHidden } from '../../messages/shown.js';
import { migrationsFolder } from '../../packageFolder.js';
import { UserError } from '../../userError.js';
import { abortable, type Signals } from './signals.js';

/**
 * Reads the settings from the environment. Removes libpq's variables (`PG*`), which the driver and PostgreSQL's
 * programs would read: only DATABASE_URL may select the database.
 */
export function readSettings(): Config {
  for (const name of Object.keys(process.env)) if (/^PG/i.test(name)) delete process.env[name];
  return readConfig(process.env);
}

/**
 * Names the database on standard error, and runs `use` with its URL. The URL is DATABASE_URL, which this function does
 * not connect to, or that of an embedded PostgreSQL, which runs until `use` ends.
 * @param mayCreate whether an embedded database is created if there is none yet
 */
export async function withDatabaseUrl(
  config: Config,
  signals: Signals,
  use: (url: string) => Promise<void>,
  { mayCreate }: { mayCreate: boolean },
): Promise<void> {
  if (config.DATABASE_URL !== undefined) {
    console.error(`database: ${escapeHidden(addressOf(config.DATABASE_URL).shown)}`);
    await use(config.DATABASE_URL);
    return;
  }
  const { isEmbeddedPostgres, openEmbeddedPostgres } = await import('../embeddedPostgres/embeddedPostgres.js');
  const folder = resolve('.data');
  if (!mayCreate && !isEmbeddedPostgres(folder)) {
    throw new UserError(
      `There is no database in ${folder}. Run this in the folder that the service runs in, or set DATABASE_URL to ` +
        'its PostgreSQL. Only serve and import create a database.',
    );
  }
  console.error(`database: embedded PostgreSQL in ${folder}`);
  const embedded = await openEmbeddedPostgres(folder, { stop: signals.first, hurry: signals.second });
  try {
    await use(embedded.url);
  } catch (error) {
    if (failureOf(error) === 'unreachable') console.error(`see the log of the embedded PostgreSQL, ${embedded.log}`);
    throw error;
  } finally {
    await embedded.close();
  }
}

/** How long canceled work may take to end, in ms. A commit that waited for a standby then succeeds, so a new key is printed. */
const CANCEL_MS = 1000;

const READ_ONLY = 'DATABASE_URL leads to a read-only replica: set it to the primary (behind deploy/haproxy, port 5432)';

/**
 * Migrates the configured database, and runs `use` with its URL and the names of the migrations that were just applied. The first
 * signal abandons `use` and cancels its statements; if `handlesFirstSignal` is set, `use` handles the first signal itself, and the
 * second one abandons it.
 * @throws {UserError} if DATABASE_URL is a replica, unless `isReader` is set
 */
export function withDatabase(
  signals: Signals,
  use: (url: string, applied: string[]) => Promise<void>,
  { handlesFirstSignal = false, isReader = false, mayCreate = false } = {},
): Promise<void> {
  const migrateAndUse = async (url: string) => {
    const { cancelSessions } = await import('../../database/blockers.js');
    const { migrateDatabase } = await import('../../database/migrations.js');
    const migrating = migrateDatabase(url, migrationsFolder, { retriesOutage: true });
    const { role, applied } = await abortable(signals.first, migrating);
    if (role === 'replica' && !isReader) throw new UserError(READ_ONLY);
    const using = use(url, applied);
    if (handlesFirstSignal) return abortable(signals.second, using);
    await abortable(signals.first, using).catch(async (error: unknown) => {
      const canceled = () => cancelSessions(url).then(() => using);
      if (signals.first.aborted) await Promise.race([canceled(), sleep(CANCEL_MS)]).catch(() => {});
      throw error;
    });
  };
  return withDatabaseUrl(readSettings(), signals, migrateAndUse, { mayCreate });
}
