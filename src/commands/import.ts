/** `import`: numbers from files into the database. */
import { Presets, SingleBar } from 'cli-progress';
import type { Database } from '../database/connect.js';
import type { Progress } from '../numbers/import.js';
import { changeByFiles } from './changes.js';
import { withConfiguredDatabase } from './database.js';
import type { CommandWithExamples } from './program.js';

/** A number as an import takes it: with all that it needs, and nothing more. */
const ITEM = {
  phoneNumber: '+14155550123',
  businessProfile: { id: '6513270e-269e-4d37-b2a7-4de452e6b438', businessName: 'Circle Bank', status: 'approved' },
  internalName: 'Mortgage Sales Line',
  brandingNameShort: 'Circle Bank',
  brandingNameLong: null,
  reportingGroup: null,
  carrierStatuses: [{ carrier: 'AT&T', feature: 'brandedCallerId', detailedStatus: 'approved.optIn' }],
};

export function addImport(program: CommandWithExamples): void {
  program
    .command('import')
    .description('import numbers from NDJSON files, an item of the API a line; all lines or none')
    .argument('<file...>', 'the files; - is standard input')
    .option('--allow-empty', 'succeed even if there are no numbers in the files')
    .addHelpText('after', `\nA line of a file:\n  ${JSON.stringify(ITEM)}`)
    .examples(
      'branded-phone-numbers import numbers.ndjson',
      'branded-phone-numbers import january.ndjson february.ndjson',
      'gunzip --stdout numbers.ndjson.gz | branded-phone-numbers import -',
    )
    .action((files: string[], { allowEmpty = false }: { allowEmpty?: boolean }) =>
      withConfiguredDatabase((database) => importFiles(database, files, allowEmpty), { mayCreate: true }),
    );
}

/** The fraction of the time of a first import that goes into reading the files. */
const READING_SHARE = 0.25;

/** Imports the files `names`, reports on the standard streams, and sets the exit status. */
export function importFiles(database: Database, names: string[], allowEmpty = false): Promise<void> {
  return changeByFiles(names, {
    allowEmpty,
    wanted: 'number to import',
    async make({ stream, size }) {
      // Loaded only here, since every other command starts faster without what validates a line.
      const { importNumbers } = await import('../numbers/import.js');
      const format = '{bar} {percentage}%  {lines} lines {phase}';
      const bar = new SingleBar({ format, stream: process.stderr }, Presets.rect);
      // A bar needs a terminal, and a total size that is known.
      const isShown = process.stderr.isTTY && size !== undefined;
      if (isShown) bar.start(100, 0, { lines: 0, phase: 'read' });
      const onProgress = ({ bytes, lines, written }: Progress) => {
        const read = bytes / (size || 1);
        const part = READING_SHARE * read + (1 - READING_SHARE) * written;
        bar.update(Math.floor(100 * part), { lines, phase: read < 1 ? 'read' : 'read, now being written' });
      };
      const counts = await importNumbers(database, stream, isShown ? { onProgress } : {}).finally(() => bar.stop());
      const said = `imported ${counts.numbers} numbers, ${counts.carrierStatuses} carrier statuses`;
      return { count: counts.numbers, said };
    },
  });
}
