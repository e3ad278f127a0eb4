/** `serve`: serves the API, its documentation and its health. */
import { join } from 'node:path';
import { contract } from '../../contract.js';
import { packageFolder } from '../../packageFolder.js';
import type { CommandWithExamples } from './command.js';
import { readSettings, withDatabaseUrl } from './database.js';
import { explain } from './failure.js';
import { type Signals, Stopped } from './signals.js';

export function addServe(program: CommandWithExamples, signals: Signals): void {
  program
    .command('serve')
    .description('serve the API, its documentation at /docs and its health at /healthz and /readyz')
    .option('--demo', 'import demo data first if the database has no numbers')
    .examples(
      'branded-phone-numbers serve --demo',
      'PORT=8080 branded-phone-numbers serve',
      'DATABASE_URL=postgres://user:password@host/database AUTH=api-key HOST=0.0.0.0 branded-phone-numbers serve',
    )
    .addHelpText('after', `\n${join(packageFolder, 'docs', 'operations.md')} lists all settings.`)
    .action(async ({ demo = false }: { demo?: boolean }) => {
      const config = readSettings();
      const { flushLog, openLog } = await import('../../log.js');
      const log = openLog(config);
      log.info({ version: contract.info.version }, 'starting');
      try {
        const { serve } = await import('./service.js');
        await withDatabaseUrl(config, signals, (url) => serve(config, signals, url, log, demo), { mayCreate: true });
      } catch (error) {
        if (!(error instanceof Stopped)) log.fatal(explain(error) as Error);
        throw error;
      } finally {
        await flushLog(log);
      }
    });
}
