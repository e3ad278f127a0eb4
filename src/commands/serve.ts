/** `serve`: the service, until a signal ends it. */
import { once } from 'node:events';
import { join } from 'node:path';
import type { Config } from '../config.js';
import type { Database } from '../database/connect.js';
import { findForeignRoles, type Role } from '../database/migrations.js';
import { brandedPhoneNumbers } from '../database/schema.js';
import { printable } from '../messages/shorten.js';
import { packageFolder } from '../packageFolder.js';
import { UserError } from '../userError.js';
import { readSettings, withDatabase, withDatabaseUrl } from './database.js';
import { importFiles } from './import.js';
import type { CommandWithExamples } from './program.js';
import { type Stopped, stop, unlessStopped } from './stop.js';

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
    .action(async ({ demo }: { demo?: true }) => {
      const config = readSettings();
      await withDatabaseUrl(config, (url, role) => serve(config, url, role, demo), { mayCreate: true });
    });
}

async function serve(config: Config, url: string, role: Role, demo = false): Promise<void> {
  if (role === 'replica' && !config.REDIS_URL && config.RATE_LIMIT_PER_SECOND > 0) throw new UserError(NO_STORE);
  if (demo) await unlessStopped(stop.now, withDatabase(url, importDemo));
  // Loaded only here, since every other command starts in half of the time without them.
  const [{ openLog }, { startService }] = await Promise.all([import('../log.js'), import('../server.js')]);
  const log = openLog(config);
  // The service starts even if this can't be found out.
  const warnings = findForeignRoles(url).catch(() => []);
  for (const line of await unlessStopped(stop.asked, warnings)) log.warn(printable(line));
  const service = await unlessStopped(stop.asked, startService(config, url, log));
  log.info(`listening on ${service.url}, documentation at ${service.url}/docs`);
  if (!stop.asked.aborted) await once(stop.asked, 'abort');
  const { signal } = stop.asked.reason as Stopped;
  log.info(`${signal}: closing`);
  // Other signals come from a terminal, where there is no load balancer that has to notice first.
  const delay = signal === 'SIGTERM' ? config.DRAIN_SECONDS : 0;
  await unlessStopped(stop.now, service.close(delay));
}

const NO_STORE =
  'REDIS_URL must be set where DATABASE_URL is a replica: requests are counted for the limit, and a replica takes no writes';

async function importDemo(database: Database): Promise<void> {
  const [any] = await database.select().from(brandedPhoneNumbers).limit(1);
  if (!any) await importFiles(database, [join(packageFolder, 'demo', 'numbers.ndjson')], { signal: stop.asked });
}
