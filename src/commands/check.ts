/** `check`: whether all that the database derives is right. */
import type { Command } from 'commander';
import type { Database } from '../database/connect.js';
import { findDifferences, repairDifferences } from '../database/derived.js';
import { inTransaction } from '../database/transaction.js';
import { lockOutWriters } from '../import/locks.js';
import { withConfiguredDatabase } from './database.js';
import { report } from './output.js';

export function addCheck(program: Command): void {
  program
    .command('check')
    .description('compute again all that the database derives, and report what differs')
    .option('--repair', 'repair what differs; writers wait until it is done')
    .addHelpText(
      'after',
      `
Examples:
  branded-phone-numbers check
  branded-phone-numbers check --repair`,
    )
    .action(({ repair = false }: { repair?: boolean }) =>
      withConfiguredDatabase((database) => checkDatabase(database, repair)),
    );
}

/** Reports what differs, and what still does after the repair; the exit status is 1 where anything stays wrong. */
async function checkDatabase(database: Database, isRepairing: boolean): Promise<void> {
  const isRight = await inTransaction(database, 'READ COMMITTED', async (sql) => {
    await lockOutWriters(sql);
    let differences = await findDifferences(sql);
    if (differences.length > 0 && isRepairing) {
      for (const { count, what } of differences) await report(`repairing ${count} ${what}`);
      await repairDifferences(sql);
      differences = await findDifferences(sql);
    }
    for (const { count, what, examples } of differences) {
      console.error(
        `${count} ${what} differ from what they are derived from: ${examples.join(', ')}${count > examples.length ? ', …' : ''}`,
      );
    }
    return differences.length === 0;
  });
  if (isRight) await report('all that is derived is right');
  else process.exitCode = 1;
}
