/** `check`: whether everything that the database derives is right. */

import type { Database } from '../database/connect.js';
import { deriveAll } from '../numbers/check.js';
import { withConfiguredDatabase } from './database.js';
import { report } from './output.js';
import type { CommandWithExamples } from './program.js';

export function addCheck(program: CommandWithExamples): void {
  program
    .command('check')
    .description('derive everything again, and report what differed')
    .option('--repair', 'keep what was derived')
    .examples('branded-phone-numbers check', 'branded-phone-numbers check --repair')
    .action(({ repair = false }: { repair?: boolean }) =>
      withConfiguredDatabase((database) => checkDatabase(database, repair)),
    );
}

/** Reports what differed; the exit status is 1 where it still does. */
async function checkDatabase(database: Database, isRepairing: boolean): Promise<void> {
  const differences = await deriveAll(database, { keep: isRepairing });
  for (const { count, what, examples } of differences) {
    const line = `${count} numbers ${what}: ${examples.join(', ')}${count > examples.length ? ', …' : ''}`;
    if (isRepairing) await report(`repaired: ${line}`);
    else console.error(line);
  }
  if (differences.length === 0 || isRepairing) await report('all that is derived is right');
  else process.exitCode = 1;
}
