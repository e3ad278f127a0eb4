/** A command of the program, with examples in its help. */
import { Command } from 'commander';

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
