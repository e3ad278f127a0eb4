/** Changes by the lines of files, which `import` and `delete` make: all lines count, or none. */
import { type InputFiles, openInputFiles } from '../numbers/inputFiles.js';
import { InputError, sentence } from '../numbers/lines.js';
import { report } from './output.js';

interface Options {
  allowEmpty: boolean;
  /** What the lines should hold. */
  wanted: string;
  /** Makes the change; `count` is how many lines took part, `said` what it did. */
  make(files: InputFiles): Promise<{ count: number; said: string }>;
}

/** Makes a change by the lines of the files `names`, reports on the standard streams, and sets the exit status. */
export async function changeByFiles(names: string[], { allowEmpty, wanted, make }: Options): Promise<void> {
  const files = await openInputFiles(names);
  try {
    const { count, said } = await make(files);
    await report(said);
    if (count > 0 || allowEmpty) return;
    // Most likely a mistake: the wrong file, or an earlier program in the pipe that failed.
    console.error(`there was no ${wanted}; if that is right, pass --allow-empty`);
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    for (const fault of error.faults) console.error(sentence(fault, files.place));
  }
  process.exitCode = 1;
}
