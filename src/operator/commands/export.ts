/** `export`: writes numbers as NDJSON or CSV that `import` reads. */
import { countOf, countsOf } from '../../messages/count.js';
import type { Filter } from '../../page/filter.js';
import { UserError } from '../../userError.js';
import { writeWhole } from '../numbers/outputFile.js';
import type { CommandWithExamples } from './command.js';
import { withDatabase } from './database.js';
import { addFilterOptions, readFilter } from './filterOptions.js';
import { type Format, formatOf, formatOption } from './formatOption.js';
import { write } from './output.js';
import { withProgress } from './progress.js';
import type { Signals } from './signals.js';

export function addExport(program: CommandWithExamples, signals: Signals): void {
  const command = program
    .command('export')
    .description('write a snapshot of the numbers that import reads, as NDJSON, one API item per line, or CSV')
    .argument('[file]', 'the file to write; standard output if it is omitted or -')
    .addOption(formatOption());
  addFilterOptions(command);
  command
    .addHelpText(
      'after',
      '\nDifferent options are combined with AND, several values of one option with OR, as in the API.',
    )
    .examples(
      'branded-phone-numbers export numbers.ndjson',
      "branded-phone-numbers export --status rejected --carrier 'AT&T' --carrier Verizon > rejected.ndjson",
      'branded-phone-numbers export --status rejected rejected.csv',
      'branded-phone-numbers export | gzip > numbers.ndjson.gz',
    )
    .action(async (file = '-', { format = formatOf(file), ...options }: Options) => {
      if (file === '') throw new UserError('the name of the file is empty; standard output is -');
      const filter = await readFilter(options);
      await withDatabase(signals, (url) => exportTo(file, format, url, filter), { isReader: true });
    });
}

type Options = { format?: Format } & Omit<Record<string, string[] | undefined>, 'format'>;

async function exportTo(file: string, format: Format, url: string, filter: Filter): Promise<void> {
  const { exportNumbers } = await import('../numbers/export.js');
  let exported = 0;
  const onWritten = (numbers: number) => (exported = numbers);
  const exportBy = async (writeText: (text: string) => Promise<void>) => {
    if (format === 'ndjson') return exportNumbers(url, filter, writeText, onWritten);
    const { HEADER, toCsv } = await import('../numbers/csvOutput.js');
    await writeText(HEADER);
    return exportNumbers(url, filter, (lines) => writeText(toCsv(lines)), onWritten);
  };
  const exporting = () => (file === '-' ? exportBy(write) : writeWhole(file, exportBy));
  // Lines on a terminal show by themselves how far it is.
  const isShown = file === '-' && process.stdout.isTTY;
  const counts = await (isShown
    ? exporting()
    : withProgress(() => ({ text: `exported ${countOf(exported, 'number')} so far` }), exporting));
  console.error(`exported ${countsOf(counts)}`);
}
