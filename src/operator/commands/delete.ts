/** `delete`: deletes numbers by their phone numbers. */
import { existsSync } from 'node:fs';
import { countOf } from '../../messages/count.js';
import { commandName } from '../../packageFolder.js';
import { UserError } from '../../userError.js';
import { changeFromFiles, jobsOption } from './changes.js';
import type { CommandWithExamples } from './command.js';
import { withDatabase } from './database.js';
import type { Signals } from './signals.js';

interface Options {
  allowEmpty?: boolean;
  ifExists?: boolean;
  jobs?: number;
}

export function addDelete(program: CommandWithExamples, signals: Signals): void {
  program
    .command('delete')
    .description('delete numbers by phone number, one per line; if any line is invalid, delete none')
    .argument('[file...]', 'files of phone numbers; standard input if omitted or -')
    .option('--allow-empty', 'succeed even if the input has no phone numbers')
    .option('--if-exists', 'skip numbers that do not exist')
    .addOption(jobsOption())
    .examples(
      'branded-phone-numbers delete gone.txt',
      'echo +14155550123 | branded-phone-numbers delete',
      'branded-phone-numbers export --status unregistered | jq -r .phoneNumber | branded-phone-numbers delete',
    )
    .action(async (fileNames: string[], { allowEmpty = false, ...options }: Options) => {
      const phoneNumber = fileNames.find((name) => /^\+?\d{7,15}$/.test(name) && !existsSync(name));
      if (phoneNumber) {
        const example = `echo ${phoneNumber} | ${commandName} delete`;
        throw new UserError(`delete reads phone numbers from files or standard input: ${example}`);
      }
      const deleteFrom = (url: string) =>
        changeFromFiles(fileNames.length > 0 ? fileNames : ['-'], {
          allowEmpty,
          noun: 'phone numbers',
          async run({ streams }, onProgress) {
            const { deleteNumbers } = await import('../numbers/delete.js');
            const given = { ...options, signal: signals.first, onProgress };
            const { deleted, lines } = await deleteNumbers(url, streams, given);
            return { lines, summary: `deleted ${countOf(deleted, 'number')}` };
          },
        });
      await withDatabase(signals, deleteFrom, { handlesFirstSignal: true });
    });
}
