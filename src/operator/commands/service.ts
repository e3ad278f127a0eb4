/** Runs the service until a signal stops it. */
import { once } from 'node:events';
import { join } from 'node:path';
import type { Config } from '../../config/config.js';
import type { Wait } from '../../database/blockers.js';
import { type Database, withConnection } from '../../database/connection.js';
import { type Failure, failureOf, reasonOf } from '../../database/errors.js';
import { findForeignRoles } from '../../database/foreignRoles.js';
import { migrateDatabase, type Obstacle, OutdatedReplica } from '../../database/migrations.js';
import { retryInOutage } from '../../database/outage.js';
import { brandedPhoneNumbers } from '../../database/schema.js';
import type { Log } from '../../log.js';
import { escapeHidden } from '../../messages/shown.js';
import { migrationsFolder, packageFolder } from '../../packageFolder.js';
import { startService } from '../../service/server.js';
import { UserError } from '../../userError.js';
import { importFiles } from './import.js';
import { abortable, type Signals, type Stopped } from './signals.js';

/**
 * Serves the configured database, once it is usable, until the first signal; with the demo data if `demo` is set.
 * @throws if waiting for the database can't help, such as for a wrong password
 */
export async function serve(config: Config, signals: Signals, url: string, log: Log, demo: boolean): Promise<void> {
  const service = await startService(config, url, log);
  let obstacle: Obstacle | undefined;
  const onObstacle = (next: Obstacle) => {
    if (next.reason === obstacle?.reason) return;
    obstacle = next;
    log.warn({ detail: next.detail }, next.reason);
    service.setObstacle(next);
  };
  const start = async () => {
    await prepare(config, signals, url, demo, onObstacle);
    if (obstacle) log.info('PostgreSQL is available: starting');
    // Only a warning: the service starts even if the query fails.
    for (const line of await findForeignRoles(url).catch(() => [])) log.warn(escapeHidden(line));
    await service.begin();
  };
  try {
    await abortable(signals.first, start());
  } catch (error) {
    await abortable(signals.second, service.close());
    throw error;
  }
  log.info(`listening on ${service.url}, documentation at ${service.url}/docs`);
  if (!signals.first.aborted) await once(signals.first, 'abort');
  const { signal } = signals.first.reason as Stopped;
  log.info(`${signal}: closing`);
  // SIGTERM comes from an orchestrator: load balancers need time to notice. The other signals come from a terminal.
  const delay = signal === 'SIGTERM' ? config.DRAIN_SECONDS : 0;
  await abortable(signals.second, service.close(delay));
}

/**
 * Migrates the database, and imports the demo data if `demo` is set. Retries until that succeeds, except with an
 * embedded database, which is already running. Calls `onObstacle` with each reason for waiting, also if it is the same.
 * @throws if waiting can't help, such as for a wrong password
 */
async function prepare(
  config: Config,
  signals: Signals,
  url: string,
  demo: boolean,
  onObstacle: (obstacle: Obstacle) => void,
): Promise<void> {
  let isEmpty: boolean | undefined;
  const onBlocked = ({ event, blockers }: Wait) =>
    onObstacle({ reason: `the migration of the database is waiting for ${event}`, detail: blockers.join('; ') });
  const attempt = async () => {
    const { role } = await migrateDatabase(url, migrationsFolder, { onBlocked });
    if (role === 'replica' && !config.REDIS_URL && config.RATE_LIMIT_PER_SECOND > 0) throw new UserError(NO_STORE);
    if (!demo) return;
    // Checked only once, so that a retry continues an import that was cut off.
    isEmpty ??= await withConnection(url, (connection) => connection.run(hasNoNumbers));
    if (isEmpty) await importFiles(url, [DEMO], { signal: signals.first });
  };
  /** Also tells `onObstacle` what is waited for. */
  const mayPass = (error: unknown) => {
    const obstacle = config.DATABASE_URL === undefined ? undefined : obstacleOf(error);
    if (obstacle) onObstacle(obstacle);
    return obstacle !== undefined;
  };
  const forMs = Number.POSITIVE_INFINITY;
  await retryInOutage(attempt, { forMs, everyMs: 500, signal: signals.first, mayPass });
}

const hasNoNumbers = async (database: Database) =>
  (await database.select().from(brandedPhoneNumbers).limit(1)).length === 0;

/** Returns what to wait for after a failed start, or undefined if waiting can't help. */
function obstacleOf(error: unknown): Obstacle | undefined {
  if (error instanceof OutdatedReplica) {
    return { reason: 'waiting until the primary is migrated and DATABASE_URL has caught up', detail: error.message };
  }
  const reason = REASONS_TO_WAIT[failureOf(error)];
  return reason === undefined ? undefined : { reason, detail: reasonOf(error) };
}

const REASONS_TO_WAIT: Partial<Record<Failure, string>> = {
  unreachable: 'waiting until PostgreSQL can be reached',
  missing: 'waiting until the database that DATABASE_URL names is created',
  standby: 'waiting until PostgreSQL accepts writes',
  temporary: 'waiting until a temporary failure of PostgreSQL has passed',
};

const NO_STORE = 'set REDIS_URL: DATABASE_URL is a read-only replica, and the limit needs a writable store';

const DEMO = join(packageFolder, 'demo', 'numbers.ndjson');
