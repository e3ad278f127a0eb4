/** `delete`: removes numbers from the database. */
import { deleteNumbers } from '../numbers/delete.js';
import { changeByFiles } from './changes.js';
import type { CommandWithExamples } from './commandWithExamples.js';
import { withConfiguredDatabase } from './database.js';

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
    .action((names: string[], { allowEmpty = false }: { allowEmpty?: boolean }) =>
      withConfiguredDatabase((database) =>
        changeByFiles(names.length > 0 ? names : ['-'], {
          allowEmpty,
          wanted: 'phone number to delete',
          async make({ stream }) {
            const count = await deleteNumbers(database, stream);
            return { count, said: `deleted ${count} numbers` };
          },
        }),
      ),
    );
}
