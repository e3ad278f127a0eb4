/** Runs `import` and `delete`, which read lines from files and then change numbers. */
import { InvalidArgumentError, Option } from 'commander';
import { countOf } from '../../messages/count.js';
import { type InputFiles, openInputFiles } from '../numbers/inputFiles.js';
import { DEFAULT_JOBS, MAX_JOBS } from '../numbers/jobs.js';
import { InputError, sentence } from '../numbers/lines.js';
import type { Progress } from '../numbers/staging.js';
import { report } from './output.js';
import { type State, withProgress } from './progress.js';

/** Returns the option for the number of connections that write at once. */
export const jobsOption = () =>
  new Option('--jobs <number>', 'number of connections that write at once').default(DEFAULT_JOBS).argParser((text) => {
    const isCount = /^[1-9][0-9]*$/.test(text) && Number(text) <= MAX_JOBS;
    if (!isCount) throw new InvalidArgumentError(`It must be a whole number from 1 to ${MAX_JOBS}.`);
    return Number(text);
  });

interface Change {
  allowEmpty: boolean;
  /** What each line contains, in the plural, such as `phone numbers`. */
  noun: string;
  /** Makes the change. Returns the number of lines that are not blank, and a summary to print. */
  run(files: InputFiles, onProgress: (progress: Progress) => void): Promise<{ lines: number; summary: string }>;
}

/** Runs a change on the lines of files. Reports on the standard streams, and sets the exit status. */
export async function changeFromFiles(fileNames: string[], { allowEmpty, noun, run }: Change): Promise<void> {
  const files = await openInputFiles(fileNames);
  let progress: Progress | undefined;
  const isTyped = fileNames.includes('-') && process.stdin.isTTY;
  try {
    const { lines, summary } = await withProgress(
      () => stateOf(files, progress, isTyped),
      () => run(files, (update) => (progress = update)),
    );
    await report(summary);
    if (lines > 0 || allowEmpty) return;
    // Probably a mistake: the wrong file, or a failed program earlier in the pipe.
    console.error(`no ${noun} in the input; pass --allow-empty if that is intended`);
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    for (const fault of error.faults) console.error(sentence(fault, files.place));
  }
  process.exitCode = 1;
}

/** Returns how far a change is, which first reads, then writes. `isTyped` says whether a user types its input. */
function stateOf({ bytesRead, size }: InputFiles, progress: Progress | undefined, isTyped: boolean): State {
  if (progress) {
    const { written, toWrite } = progress;
    return { text: `wrote ${written} of ${countOf(toWrite, 'number')}`, share: written / toWrite };
  }
  const read = (bytesRead() / 1e6).toFixed(1);
  if (size === undefined) return { text: `read ${read} MB`, isTyped };
  return { text: `read ${read} of ${(size / 1e6).toFixed(1)} MB`, share: bytesRead() / size };
}
