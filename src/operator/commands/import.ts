/** `import`: writes numbers from NDJSON files into the database. */
import type { Database } from '../../database/connect.js';
import { changeByFiles, jobsOption } from './changes.js';
import type { CommandWithExamples } from './command.js';
import { withStoppableDatabase } from './database.js';
import type { Stop } from './stop.js';

/** The members that a number in an import must have. */
const ITEM = {
  phoneNumber: '+14155550123',
  businessProfile: { id: '6513270e-269e-4d37-b2a7-4de452e6b438', businessName: 'Circle Bank', status: 'approved' },
  internalName: 'Mortgage Sales Line',
  brandingNameShort: 'Circle Bank',
  brandingNameLong: null,
  reportingGroup: null,
  carrierStatuses: [{ carrier: 'AT&T', feature: 'brandedCallerId', detailedStatus: 'approved.optIn' }],
};

export function addImport(program: CommandWithExamples, stop: Stop): void {
  program
    .command('import')
    .description('import numbers from NDJSON files, one API item per line; if any line is invalid, import none')
    .argument('<file...>', 'NDJSON files; - is standard input')
    .option('--allow-empty', 'succeed even if the files have no numbers')
    .addOption(jobsOption())
    .addHelpText('after', `\nA line of a file:\n  ${JSON.stringify(ITEM)}`)
    .examples(
      'branded-phone-numbers import numbers.ndjson',
      'branded-phone-numbers import january.ndjson february.ndjson',
      'gunzip --stdout numbers.ndjson.gz | branded-phone-numbers import -',
    )
    .action((files: string[], options: Options) =>
      withStoppableDatabase(stop, (database, signal) => importFiles(database, files, { ...options, signal }), {
        mayCreate: true,
      }),
    );
}

interface Options {
  allowEmpty?: boolean;
  jobs?: number;
}

/** Imports the files `names`. Reports on the standard streams, and sets the exit status. */
export function importFiles(
  database: Database,
  names: string[],
  { allowEmpty = false, ...options }: Options & { signal: AbortSignal },
): Promise<void> {
  return changeByFiles(names, {
    allowEmpty,
    noun: 'numbers',
    async run({ stream }, onProgress) {
      // Loaded here, since other commands start faster without the validator.
      const { importNumbers } = await import('../numbers/import.js');
      const { numbers, carrierStatuses } = await importNumbers(database, stream, { ...options, onProgress });
      const report = `imported ${counted(numbers, 'number')}, ${counted(carrierStatuses, 'carrier status')}`;
      return { lines: numbers, report };
    },
  });
}

const counted = (count: number, noun: string) =>
  `${count} ${noun}${count === 1 ? '' : noun.endsWith('s') ? 'es' : 's'}`;
