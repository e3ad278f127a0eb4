/** `delete`: removes numbers from the database. */
import { existsSync } from 'node:fs';
import { deleteNumbers } from '../numbers/delete.js';
import { UserError } from '../userError.js';
import { changeByFiles } from './changes.js';
import { withConfiguredDatabase } from './database.js';
import type { CommandWithExamples } from './program.js';

export function addDelete(program: CommandWithExamples): void {
  program
    .command('delete')
    .description('delete numbers, given as phone numbers, one a line; all of them or none')
    .argument('[file...]', 'the files; without one, or as -, standard input')
    .option('--allow-empty', 'do not fail where there is no phone number to delete')
    .examples(
      'branded-phone-numbers delete gone.txt',
      'echo +14155550123 | branded-phone-numbers delete',
      'branded-phone-numbers export --status unregistered | jq -r .phoneNumber | branded-phone-numbers delete',
    )
    .action(async (names: string[], { allowEmpty = false }: { allowEmpty?: boolean }) => {
      const number = names.find((name) => /^\+?\d{7,15}$/.test(name) && !existsSync(name));
      if (number) {
        const right = `echo ${number} | branded-phone-numbers delete`;
        throw new UserError(`delete reads phone numbers from files or from standard input: ${right}`);
      }
      await withConfiguredDatabase((database) =>
        changeByFiles(names.length > 0 ? names : ['-'], {
          allowEmpty,
          wanted: 'phone number to delete',
          async make({ stream }) {
            const count = await deleteNumbers(database, stream);
            return { count, said: `deleted ${count} numbers` };
          },
        }),
      );
    });
}
