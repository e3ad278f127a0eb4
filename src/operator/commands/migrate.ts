/** `migrate`: brings the schema up to date. */
import { escapeHidden } from '../../messages/shown.js';
import type { CommandWithExamples } from './command.js';
import { withDatabase } from './database.js';
import { report } from './output.js';
import type { Signals } from './signals.js';

export function addMigrate(program: CommandWithExamples, signals: Signals): void {
  program
    .command('migrate')
    .description('create or update the schema, then exit')
    .examples('DATABASE_URL=postgres://user:password@host/database branded-phone-numbers migrate')
    .action(() => withDatabase(signals, reportMigrations, { isReader: true }));
}

async function reportMigrations(url: string, applied: string[]): Promise<void> {
  const { findForeignRoles } = await import('../../database/foreignRoles.js');
  for (const line of await findForeignRoles(url)) console.error(escapeHidden(line));
  for (const name of applied) await report(`applied ${name}`);
  await report('the database is up to date');
}
