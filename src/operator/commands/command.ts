/** A command with examples in its help. */
import { Command } from 'commander';
import { commandName } from '../../packageFolder.js';

export class CommandWithExamples extends Command {
  /** Makes subcommands of the same class. */
  override createCommand(name?: string): CommandWithExamples {
    return new CommandWithExamples(name);
  }

  /** Adds examples to the end of the help, each a complete command line of `branded-phone-numbers`. */
  examples(...lines: string[]): this {
    const typed = lines.map((line) => line.replaceAll('branded-phone-numbers', commandName));
    return this.addHelpText('after', ['\nExamples:', ...typed].join('\n  '));
  }
}
