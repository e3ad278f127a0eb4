/** `migrate`: the schema, brought up to date. */
import { findForeignRoles } from '../database/migrations.js';
import { printable } from '../messages/shorten.js';
import { readSettings, withMigratedUrl } from './database.js';
import { report } from './output.js';
import type { CommandWithExamples } from './program.js';
import { stop, unlessStopped } from './stop.js';

export function addMigrate(program: CommandWithExamples): void {
  program
    .command('migrate')
    .description('bring the database up to date')
    .examples('DATABASE_URL=postgres://user:password@host/database branded-phone-numbers migrate')
    .action(() =>
      withMigratedUrl(readSettings(), async (url) => {
        for (const line of await unlessStopped(stop.asked, findForeignRoles(url))) console.error(printable(line));
        await report('the database is up to date');
      }),
    );
}
