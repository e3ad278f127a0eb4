/** `check`: compares the read model with its sources. */
import { countOf } from '../../messages/count.js';
import type { CommandWithExamples } from './command.js';
import { withDatabase } from './database.js';
import { report } from './output.js';
import { withProgress } from './progress.js';
import type { Signals } from './signals.js';

export function addCheck(program: CommandWithExamples, signals: Signals): void {
  program
    .command('check')
    .description('derive the read model again, and report numbers that differ')
    .option('--repair', 'repair the numbers that differ')
    .examples('branded-phone-numbers check', 'branded-phone-numbers check --repair')
    .action(({ repair = false }: { repair?: boolean }) =>
      withDatabase(signals, (url) => checkDatabase(url, repair, signals.first)),
    );
}

/** Reports the differences, and repairs them if `repair` is set; otherwise they set the exit status to 1. */
async function checkDatabase(url: string, repair: boolean, signal: AbortSignal): Promise<void> {
  const { deriveAll } = await import('../numbers/check.js');
  let text = 'looking for the numbers to check';
  const onProgress = (done: number, total: number) => (text = `checked ${done} of ${countOf(total, 'number')}`);
  const derive = () => deriveAll(url, { keep: repair, signal, onProgress });
  const differences = await withProgress(() => ({ text }), derive);
  for (const { count, nouns, examples } of differences) {
    const line = `${countOf(count, ...nouns)}: ${examples.join(', ')}${count > examples.length ? ', …' : ''}`;
    if (repair) await report(`repaired: ${line}`);
    else console.error(line);
  }
  if (differences.length === 0 || repair) await report('OK: the read model matches its sources');
  else process.exitCode = 1;
}
