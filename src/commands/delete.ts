/** `delete`: removes numbers from the database. */

import { deleteNumbers } from '../numbers/delete.js';
import { openInputFiles } from '../numbers/inputFiles.js';
import type { CommandWithExamples } from './commandWithExamples.js';
import { withConfiguredDatabase } from './database.js';
import { reportFaults } from './import.js';
import { report } from './output.js';

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
      withConfiguredDatabase(async (database) => {
        const files = await openInputFiles(names.length > 0 ? names : ['-']);
        let deleted: number;
        try {
          deleted = await deleteNumbers(database, files.stream);
        } catch (error) {
          return reportFaults(error, files);
        }
        await report(`deleted ${deleted} numbers`);
        if (deleted > 0 || allowEmpty) return;
        console.error('there was no phone number to delete; if that is right, pass --allow-empty');
        process.exitCode = 1;
      }),
    );
}
