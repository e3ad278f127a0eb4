/** `serve`: the service, until a signal ends it. */
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Config } from '../config.js';
import { causeOf, codeOf, isConnectionBroken, NO_DATABASE, READ_ONLY, UNABLE } from '../database/errors.js';
import { findForeignRoles, migrateDatabase, OutdatedReplica } from '../database/migrations.js';
import { brandedPhoneNumbers } from '../database/schema.js';
import type { Obstacle } from '../database/version.js';
import type { Log } from '../log.js';
import { printable } from '../messages/shorten.js';
import { migrationsFolder, packageFolder } from '../packageFolder.js';
import { UserError } from '../userError.js';
import { readSettings, withDatabase, withDatabaseUrl } from './database.js';
import { explain, reasonsOf } from './failure.js';
import { importFiles } from './import.js';
import type { CommandWithExamples } from './program.js';
import { Stopped, stop, unlessStopped } from './stop.js';

/** Milliseconds between attempts to prepare a database that can't be used yet. */
const RETRY_INTERVAL_MS = 500;

export function addServe(program: CommandWithExamples): void {
  program
    .command('serve')
    .description('serve the API, its documentation at /docs and its health at /healthz and /readyz')
    .option('--demo', 'import the demo data first, if there are no numbers')
    .examples(
      'branded-phone-numbers serve --demo',
      'PORT=8080 branded-phone-numbers serve',
      'DATABASE_URL=postgres://user:password@host/database AUTH=api-key HOST=0.0.0.0 branded-phone-numbers serve',
    )
    .addHelpText('after', `\n${join(packageFolder, 'docs', 'operations.md')} lists all settings.`)
    .action(async ({ demo = false }: { demo?: boolean }) => {
      const config = readSettings();
      let log: Log | undefined;
      const use = async (url: string) => {
        log = (await import('../log.js')).openLog(config);
        await serve(config, url, log, demo);
      };
      try {
        await withDatabaseUrl(config, use, { mayCreate: true });
      } catch (error) {
        if (!(error instanceof Stopped)) log?.fatal(explain(error) as Error);
        throw error;
      }
    });
}

async function serve(config: Config, url: string, log: Log, demo: boolean): Promise<void> {
  // Loaded only here, since every other command starts in half of the time without it.
  const { startService } = await import('../server.js');
  const service = await startService(config, url, log);
  const onObstacle = (obstacle: Obstacle) => {
    log.warn({ detail: obstacle.detail }, obstacle.reason);
    service.waitFor(obstacle);
  };
  const start = async () => {
    if (await prepare(config, url, demo, onObstacle)) log.info('PostgreSQL can be used: starting');
    // The service starts even if this can't be found out.
    for (const line of await findForeignRoles(url).catch(() => [])) log.warn(printable(line));
    await service.begin();
  };
  try {
    await unlessStopped(stop.asked, start());
  } catch (error) {
    await unlessStopped(stop.now, service.close());
    throw error;
  }
  log.info(`listening on ${service.url}, documentation at ${service.url}/docs`);
  if (!stop.asked.aborted) await once(stop.asked, 'abort');
  const { signal } = stop.asked.reason as Stopped;
  log.info(`${signal}: closing`);
  // Other signals come from a terminal, where there is no load balancer that has to notice first.
  const delay = signal === 'SIGTERM' ? config.DRAIN_SECONDS : 0;
  await unlessStopped(stop.now, service.close(delay));
}

/**
 * Migrates the database and imports the demo data if asked to. Retries until that succeeds, unless the database is the
 * embedded one, which runs by now. Calls `onObstacle` once for each reason.
 * @returns whether it had to wait
 * @throws the error that waiting can't mend
 */
async function prepare(config: Config, url: string, demo: boolean, onObstacle: (obstacle: Obstacle) => void) {
  let reason: string | undefined;
  let isEmpty: boolean | undefined;
  for (; ; await sleep(RETRY_INTERVAL_MS, undefined, { signal: stop.asked })) {
    try {
      const role = await migrateDatabase(url, migrationsFolder);
      if (role === 'replica' && !config.REDIS_URL && config.RATE_LIMIT_PER_SECOND > 0) throw new UserError(NO_STORE);
      if (demo) {
        await withDatabase(url, async (database) => {
          // Looked up once: an import that was cut off goes on.
          isEmpty ??= (await database.select().from(brandedPhoneNumbers).limit(1)).length === 0;
          if (isEmpty) await importFiles(database, [DEMO], { signal: stop.asked });
        });
      }
      return reason !== undefined;
    } catch (error) {
      const obstacle = config.DATABASE_URL === undefined ? undefined : obstacleOf(error);
      if (!obstacle) throw error;
      if (obstacle.reason !== reason) onObstacle(obstacle);
      reason = obstacle.reason;
    }
  }
}

/** Returns what a start waits for after `error`; undefined if somebody has to change a setting or a privilege first. */
function obstacleOf(error: unknown): Obstacle | undefined {
  if (error instanceof OutdatedReplica) {
    return { reason: 'waiting until the primary is migrated and DATABASE_URL has caught up', detail: error.message };
  }
  if (error instanceof UserError) return undefined;
  const code = codeOf(causeOf(error));
  const detail = reasonsOf(error);
  if (code === NO_DATABASE) return { reason: 'waiting until the database that DATABASE_URL names is created', detail };
  if (isConnectionBroken(error)) return { reason: 'waiting until PostgreSQL can be reached', detail };
  const isPassing = code === READ_ONLY || (UNABLE.test(code) && !LOGIN_REFUSED.test(code));
  return isPassing ? { reason: 'waiting until PostgreSQL can do what the start needs', detail } : undefined;
}

/** PostgreSQL's codes for a wrong password, an unknown role, or a rule of pg_hba.conf. */
const LOGIN_REFUSED = /^28/;

const NO_STORE =
  'REDIS_URL must be set where DATABASE_URL is a replica: requests are counted for the limit, and a replica takes no writes';

const DEMO = join(packageFolder, 'demo', 'numbers.ndjson');
