/** `migrate`: the schema, brought up to date. */
import { readSettings, withDatabaseUrl } from './database.js';
import { report } from './output.js';
import type { CommandWithExamples } from './program.js';

export function addMigrate(program: CommandWithExamples): void {
  program
    .command('migrate')
    .description('bring the database up to date')
    .examples('DATABASE_URL=postgres://user:password@host/database branded-phone-numbers migrate')
    .action(() => withDatabaseUrl(readSettings(), () => report('the database is up to date')));
}
