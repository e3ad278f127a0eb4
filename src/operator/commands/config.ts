/** `config`: prints the effective settings. */
import { withoutSecrets } from '../../config/config.js';
import type { CommandWithExamples } from './command.js';
import { readSettings } from './database.js';
import { write } from './output.js';

export function addConfig(program: CommandWithExamples): void {
  program
    .command('config')
    .description('print the effective settings, with secrets hidden; exit with 1 if one is wrong')
    .examples('RATE_LIMIT_PER_SECOND=20 branded-phone-numbers config')
    .action(() => {
      const lines = Object.entries(withoutSecrets(readSettings())).map(([name, value = '']) => `${name}=${value}\n`);
      return write(lines.join(''));
    });
}
