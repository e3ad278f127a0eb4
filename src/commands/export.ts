/** `export`: writes the numbers of the database in the form that `import` reads. */
import { Presets, SingleBar } from 'cli-progress';
import type { Database } from '../database/connect.js';
import { exportNumbers } from '../numbers/export.js';
import { writeWhole } from '../numbers/outputFile.js';
import type { Filter } from '../request/filter.js';
import type { CommandWithExamples } from './commandWithExamples.js';
import { withConfiguredDatabase } from './database.js';
import { addFilterOptions, readFilter } from './filterOptions.js';
import { write } from './output.js';

export function addExport(program: CommandWithExamples): void {
  const command = program
    .command('export')
    .description('write the numbers of one moment as NDJSON, an item of the API a line, which import reads')
    .argument('[file]', 'where to write; without it, or with -, standard output');
  addFilterOptions(command);
  command
    .addHelpText('after', '\nDifferent options narrow the list, several values of one option widen it, as in the API.')
    .examples(
      'branded-phone-numbers export numbers.ndjson',
      "branded-phone-numbers export --status rejected --carrier 'AT&T' --carrier Verizon > rejected.ndjson",
      'branded-phone-numbers export | gzip > numbers.ndjson.gz',
    )
    .action(async (file = '-', options: Record<string, string[] | undefined>) => {
      const filter = await readFilter(options);
      await withConfiguredDatabase((database) => exportTo(file, database, filter, Object.keys(options).length > 0));
    });
}

async function exportTo(file: string, database: Database, filter: Filter, isFiltered: boolean): Promise<void> {
  // The total is known only for an export of all numbers. Lines on the same terminal would break up a progress bar.
  const isShown = process.stderr.isTTY && !(file === '-' && process.stdout.isTTY);
  const format = isFiltered ? '{value} numbers' : '{bar} {percentage}%  {value} of {total} numbers';
  const bar = new SingleBar({ format, stream: process.stderr, clearOnComplete: true }, Presets.rect);
  let counts = { numbers: 0, carrierStatuses: 0 };
  const onProgress = ({ numbers, total }: { numbers: number; total: number }) => {
    bar.setTotal(total);
    bar.update(numbers);
  };
  const run = async (writeLines: (lines: string) => Promise<void>) => {
    if (isShown) bar.start(0, 0);
    try {
      counts = await exportNumbers(database, filter, writeLines, isShown ? { onProgress } : {});
    } finally {
      bar.stop();
    }
  };
  if (file === '-') await run(write);
  else await writeWhole(file, run);
  console.error(`exported ${counts.numbers} numbers, ${counts.carrierStatuses} carrier statuses`);
}
