/** `import`: writes numbers from NDJSON and CSV files into the database. */
import { countOf, countsOf } from '../../messages/count.js';
import { UserError } from '../../userError.js';
import { changeFromFiles, jobsOption } from './changes.js';
import type { CommandWithExamples } from './command.js';
import { withDatabase } from './database.js';
import { type Format, formatOf, formatOption } from './formatOption.js';
import type { Signals } from './signals.js';

/** An item with only the members that an import requires. */
const EXAMPLE_ITEM = {
  phoneNumber: '+14155550123',
  businessProfile: { id: '6513270e-269e-4d37-b2a7-4de452e6b438', businessName: 'Circle Bank', status: 'approved' },
  internalName: 'Mortgage Sales Line',
  brandingNameShort: 'Circle Bank',
  brandingNameLong: null,
  reportingGroup: null,
  carrierStatuses: [{ carrier: 'AT&T', feature: 'brandedCallerId', detailedStatus: 'approved.optIn' }],
};

export function addImport(program: CommandWithExamples, signals: Signals): void {
  program
    .command('import')
    .description('import numbers from NDJSON, one API item per line, or CSV; if any line is invalid, import none')
    .argument('<file...>', 'NDJSON or CSV files; - is standard input')
    .addOption(formatOption())
    .option('--allow-empty', 'succeed even if the files have no numbers')
    .option('--delete-missing', 'then delete the numbers that the files do not have, unless these are more than half')
    .option('--force', 'with --delete-missing: delete them, however many they are')
    .addOption(jobsOption())
    .addHelpText('after', `\nA line of a file:\n  ${JSON.stringify(EXAMPLE_ITEM)}`)
    .examples(
      'branded-phone-numbers import numbers.ndjson',
      'branded-phone-numbers import january.ndjson february.ndjson',
      'branded-phone-numbers import --delete-missing all-numbers.csv',
      'gunzip --stdout numbers.ndjson.gz | branded-phone-numbers import -',
    )
    .action(async (fileNames: string[], options: Options) => {
      if (options.force && !options.deleteMissing)
        throw new UserError('--force has no effect without --delete-missing');
      await withDatabase(signals, (url) => importFiles(url, fileNames, { ...options, signal: signals.first }), {
        handlesFirstSignal: true,
        mayCreate: true,
      });
    });
}

interface Options {
  allowEmpty?: boolean;
  deleteMissing?: boolean;
  force?: boolean;
  format?: Format;
  jobs?: number;
}

/** Imports numbers from files. Reports on the standard streams, and sets the exit status. */
export function importFiles(
  url: string,
  fileNames: string[],
  { allowEmpty = false, format, ...options }: Options & { signal: AbortSignal },
): Promise<void> {
  return changeFromFiles(fileNames, {
    allowEmpty: allowEmpty || options.force === true,
    noun: 'numbers',
    async run({ streams }, onProgress) {
      const { importNumbers } = await import('../numbers/import.js');
      const formats = fileNames.map((name) => format ?? formatOf(name));
      const { deleted, ...counts } = await importNumbers(url, streams, { ...options, formats, onProgress });
      const deletion = deleted === undefined ? '' : `, deleted ${countOf(deleted, 'number')}`;
      return { lines: counts.numbers, summary: `imported ${countsOf(counts)}${deletion}` };
    },
  });
}
