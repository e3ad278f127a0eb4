/** A command with examples in its help. */
import { Command } from 'commander';

export class CommandWithExamples extends Command {
  /** Makes subcommands of the same class. */
  override createCommand(name?: string): CommandWithExamples {
    return new CommandWithExamples(name);
  }

  /** Adds examples to the end of the help, each a complete command line. */
  examples(...lines: string[]): this {
    return this.addHelpText('after', ['\nExamples:', ...lines].join('\n  '));
  }
}
