#!/usr/bin/env node
/** The command `branded-phone-numbers`; each of its commands is a file in `commands/`. */
import type { Command } from 'commander';
import { addCheck } from './commands/check.js';
import { CommandWithExamples } from './commands/commandWithExamples.js';
import { addDelete } from './commands/delete.js';
import { addExport } from './commands/export.js';
import { reportFailure } from './commands/failure.js';
import { addImport } from './commands/import.js';
import { addKeys } from './commands/keys.js';
import { addMigrate } from './commands/migrate.js';
import { addServe } from './commands/serve.js';
import { listenForSignals, Stopped } from './commands/stop.js';
import { contract } from './contract.js';

const program = new CommandWithExamples('branded-phone-numbers')
  .description(contract.info.summary)
  .version(contract.info.version);

addServe(program);
addMigrate(program);
addImport(program);
addExport(program);
addDelete(program);
addCheck(program);
addKeys(program);

sayWhereHelpIs(program);
listenForSignals();
try {
  await program.parseAsync();
} catch (error) {
  if (error instanceof Stopped) {
    console.error(error.message);
    process.exit(error.exitCode); // what was stopped may still be running
  }
  reportFailure(error);
}

/** An argument error ends with a pointer to the help: printing all of it would make the reason scroll away. */
function sayWhereHelpIs(command: Command, path = command.name()): void {
  command.showHelpAfterError(`${path} --help shows how it is used`);
  for (const each of command.commands) sayWhereHelpIs(each, `${path} ${each.name()}`);
}
