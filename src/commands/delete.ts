/** `delete`: removes numbers from the database. */
import { existsSync } from 'node:fs';
import { deleteNumbers } from '../numbers/delete.js';
import { UserError } from '../userError.js';
import { changeByFiles, jobsOption } from './changes.js';
import { withStoppableDatabase } from './database.js';
import type { CommandWithExamples } from './program.js';

interface Options {
  allowEmpty?: boolean;
  ifExists?: boolean;
  jobs?: number;
}

export function addDelete(program: CommandWithExamples): void {
  program
    .command('delete')
    .description('delete numbers, given as phone numbers, one a line; none if a line is wrong')
    .argument('[file...]', 'the files; without one, or as -, standard input')
    .option('--allow-empty', 'succeed even if there is no phone number to delete')
    .option('--if-exists', 'pass over numbers that do not exist')
    .addOption(jobsOption())
    .examples(
      'branded-phone-numbers delete gone.txt',
      'echo +14155550123 | branded-phone-numbers delete',
      'branded-phone-numbers export --status unregistered | jq -r .phoneNumber | branded-phone-numbers delete',
    )
    .action(async (names: string[], { allowEmpty = false, ...options }: Options) => {
      const number = names.find((name) => /^\+?\d{7,15}$/.test(name) && !existsSync(name));
      if (number) {
        const right = `echo ${number} | branded-phone-numbers delete`;
        throw new UserError(`delete reads phone numbers from files or from standard input: ${right}`);
      }
      await withStoppableDatabase((database, signal) =>
        changeByFiles(names.length > 0 ? names : ['-'], {
          allowEmpty,
          wanted: 'phone numbers',
          async make({ stream }, onProgress) {
            const { deleted, lines } = await deleteNumbers(database, stream, { ...options, signal, onProgress });
            return { count: lines, report: `deleted ${deleted} numbers` };
          },
        }),
      );
    });
}
