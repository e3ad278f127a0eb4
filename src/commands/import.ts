/** `import`: numbers from files into the database. */
import { Presets, SingleBar } from 'cli-progress';
import type { Database } from '../database/connect.js';
import { type InputFiles, openInputFiles } from '../numbers/inputFiles.js';
import { InputError } from '../numbers/lines.js';
import type { CommandWithExamples } from './commandWithExamples.js';
import { withConfiguredDatabase } from './database.js';

export function addImport(program: CommandWithExamples): void {
  program
    .command('import')
    .description('import numbers from NDJSON files, an item of the API a line; all lines or none')
    .argument('<file...>', 'the files; - is standard input')
    .option('--allow-empty', 'succeed even if there are no numbers in the files')
    .examples(
      'branded-phone-numbers import numbers.ndjson',
      'branded-phone-numbers import january.ndjson february.ndjson',
      'gunzip --stdout numbers.ndjson.gz | branded-phone-numbers import -',
    )
    .action((files: string[], { allowEmpty = false }: { allowEmpty?: boolean }) =>
      withConfiguredDatabase((database) => importFiles(database, files, { allowEmpty }), { mayCreate: true }),
    );
}

/** The fraction of the time of a first import that goes into reading the files. */
const READING_SHARE = 0.25;

/** Imports the files `names`, reports on the standard streams, and sets the exit status. */
export function importFiles(
  database: Database,
  names: string[],
  { allowEmpty = false }: { allowEmpty?: boolean } = {},
): Promise<void> {
  // Loaded only here, since every other command starts faster without what validates a line.
  const { importNumbers } = await import('../numbers/import.js');
  const files = await openInputFiles(names);
  const bar = new SingleBar(
    { format: '{bar} {percentage}%  {lines} lines {phase}', stream: process.stderr },
    Presets.rect,
  );
  // A bar needs a terminal, and a total size that is known.
  const isShown = process.stderr.isTTY && files.size !== undefined;
  if (isShown) bar.start(100, 0, { lines: 0, phase: 'read' });
  try {
    const { numbers, carrierStatuses } = await importNumbers(database, files.stream, {
      onProgress({ bytes, lines, written }) {
        if (!isShown) return;
        const read = bytes / (files.size || 1);
        const part = READING_SHARE * read + (1 - READING_SHARE) * written;
        bar.update(Math.floor(100 * part), { lines, phase: read < 1 ? 'read' : 'read, now being written' });
      },
    });
    bar.stop();
    await report(`imported ${numbers} numbers, ${carrierStatuses} carrier statuses`);
    // Most likely a mistake: the wrong file, or a program earlier in the pipe that failed.
    if (numbers > 0 || allowEmpty) return;
    console.error('there was no number to import; if that is right, pass --allow-empty');
    process.exitCode = 1;
  } catch (error) {
    bar.stop();
    reportFaults(error, files);
  }
}

/** Says which lines of `files` are at fault, and sets the exit status. @throws `error`, if it is about anything else */
export function reportFaults(error: unknown, files: InputFiles): void {
  if (!(error instanceof InputError)) throw error;
  const inPlace = (reason: string) => reason.replace(/\bline (\d+)/g, (_line, number) => files.place(Number(number)));
  for (const { line, reason } of error.faults) console.error(`${files.place(line)}: ${inPlace(reason)}`);
  process.exitCode = 1;
}
