/**
 * The program `branded-phone-numbers`. Each of its commands has a file in this folder. It imports what it runs in its action,
 * so that `--help` and each command load only what they need.
 */
import type { Command } from 'commander';
import { contract } from '../../contract.js';
import { escapeHidden } from '../../messages/shown.js';
import { commandName } from '../../packageFolder.js';
import { addCheck } from './check.js';
import { CommandWithExamples } from './command.js';
import { addConfig } from './config.js';
import { addDelete } from './delete.js';
import { addExport } from './export.js';
import { addImport } from './import.js';
import { addKeys } from './keys.js';
import { addMigrate } from './migrate.js';
import { writeText } from './output.js';
import { addServe } from './serve.js';
import type { Signals } from './signals.js';

/** Returns the program, ready to parse command lines; `signals` end its commands. */
export function createProgram(signals: Signals): Command {
  const program = new CommandWithExamples(commandName)
    .description(contract.info.summary)
    .version(contract.info.version);
  for (const add of [addServe, addMigrate, addImport, addExport, addDelete, addCheck, addKeys, addConfig])
    add(program, signals);
  pointToHelp(program);
  return program;
}

/**
 * Adds "see … --help" to argument errors, since the whole help would push the message off the screen. Escapes invisible
 * characters in arguments that a message quotes.
 */
function pointToHelp(command: Command, path = command.name()): void {
  command.configureOutput({
    writeOut: writeText,
    outputError: (text, write) => write(text.replace(/.+/g, escapeHidden)),
  });
  command.showHelpAfterError(`see ${path} --help`);
  for (const subcommand of command.commands) pointToHelp(subcommand, `${path} ${subcommand.name()}`);
}
