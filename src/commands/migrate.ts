/** `migrate`: the schema, brought up to date. */
import type { Command } from 'commander';
import { readSettings, withDatabaseUrl } from './database.js';
import { report } from './output.js';

export function addMigrate(program: Command): void {
  program
    .command('migrate')
    .description('bring the database up to date')
    .addHelpText(
      'after',
      `
Examples:
  DATABASE_URL=postgres://user:password@host/database branded-phone-numbers migrate`,
    )
    .action(() => withDatabaseUrl(readSettings(), () => report('the database is up to date')));
}
