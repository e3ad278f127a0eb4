/** The program `branded-phone-numbers`. Each of its commands has a file in this folder. */
import { Command, type OutputConfiguration } from 'commander';
import { contract } from '../contract.js';
import { printable } from '../messages/shorten.js';
import { addCheck } from './check.js';
import { addDelete } from './delete.js';
import { addExport } from './export.js';
import { addImport } from './import.js';
import { addKeys } from './keys.js';
import { addMigrate } from './migrate.js';
import { addServe } from './serve.js';
import type { Stop } from './stop.js';

/** A command whose help ends with examples. */
export class CommandWithExamples extends Command {
  /** Makes subcommands of the same class. */
  override createCommand(name?: string): CommandWithExamples {
    return new CommandWithExamples(name);
  }

  /** Adds examples to the help, each a complete command line. */
  examples(...lines: string[]): this {
    return this.addHelpText('after', ['\nExamples:', ...lines].join('\n  '));
  }
}

/** Returns the program, ready to parse command lines; `stop` ends its commands. */
export function createProgram(stop: Stop): Command {
  const program = new CommandWithExamples('branded-phone-numbers')
    .description(contract.info.summary)
    .version(contract.info.version);
  addServe(program, stop);
  addMigrate(program, stop);
  addImport(program, stop);
  addExport(program, stop);
  addDelete(program, stop);
  addCheck(program, stop);
  addKeys(program, stop);
  pointToHelp(program);
  return program;
}

/** Escapes invisible characters of arguments that an error message repeats. */
const PRINTABLE: OutputConfiguration = {
  outputError: (text, write) => write(text.replace(/.+/g, printable)),
};

/** Ends argument errors with a pointer to the help: the whole help would push the message off the screen. */
function pointToHelp(command: Command, path = command.name()): void {
  command.configureOutput(PRINTABLE);
  command.showHelpAfterError(`see ${path} --help`);
  for (const subcommand of command.commands) pointToHelp(subcommand, `${path} ${subcommand.name()}`);
}
