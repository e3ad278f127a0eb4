/** The program `branded-phone-numbers` with its commands, each of which is a file beside this one. */
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

/** A command whose help ends with examples. */
export class CommandWithExamples extends Command {
  /** For the commands of this one. */
  override createCommand(name?: string): CommandWithExamples {
    return new CommandWithExamples(name);
  }

  /** Adds examples, each a line that can be typed as it is. */
  examples(...lines: string[]): this {
    return this.addHelpText('after', ['\nExamples:', ...lines].join('\n  '));
  }
}

/** The program, ready to parse the arguments of a command line. */
export function createProgram(): Command {
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
  return program;
}

/** Shows what can't be seen of the arguments that an error repeats. */
const PRINTABLE: OutputConfiguration = {
  outputError: (text, write) => write(text.replace(/.+/g, printable)),
};

/** An argument error ends with a pointer to the help: printing all of it would make the reason scroll away. */
function sayWhereHelpIs(command: Command, path = command.name()): void {
  command.configureOutput(PRINTABLE);
  command.showHelpAfterError(`${path} --help shows how it is used`);
  for (const each of command.commands) sayWhereHelpIs(each, `${path} ${each.name()}`);
}
