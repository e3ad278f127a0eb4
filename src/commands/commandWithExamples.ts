/** A command of the program, whose help ends with examples. */
import { Command } from 'commander';

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
