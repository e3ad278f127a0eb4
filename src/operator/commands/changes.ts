/** Runs `import` and `delete`, which read lines from files and then change numbers. */
import cliProgress from 'cli-progress';
import { InvalidArgumentError, Option } from 'commander';
import { type InputFiles, openInputFiles } from '../numbers/inputFiles.js';
import { InputError, sentence } from '../numbers/lines.js';
import { DEFAULT_JOBS, type Progress } from '../numbers/staging.js';
import { report } from './output.js';

const MAX_JOBS = 1000;

/** Returns the option for the number of connections that write at once. */
export const jobsOption = () =>
  new Option('--jobs <number>', 'number of connections that write at once').default(DEFAULT_JOBS).argParser((text) => {
    const isCount = /^[1-9][0-9]*$/.test(text) && Number(text) <= MAX_JOBS;
    if (!isCount) throw new InvalidArgumentError(`It must be a whole number from 1 to ${MAX_JOBS}.`);
    return Number(text);
  });

interface Change {
  /** Whether an input without lines is valid. */
  allowEmpty: boolean;
  /** What each line contains, in the plural, such as `phone numbers`. */
  noun: string;
  /** Makes the change. Returns the number of lines that are not blank, and a summary to print. */
  run(files: InputFiles, onProgress: (progress: Progress) => void): Promise<{ lines: number; summary: string }>;
}

/** Runs a change on the lines of files. Reports on the standard streams, and sets the exit status. */
export async function changeFromFiles(fileNames: string[], { allowEmpty, noun, run }: Change): Promise<void> {
  const files = await openInputFiles(fileNames);
  const bar = new ProgressBar(files.size);
  try {
    const { lines, summary } = await run(files, (progress) => bar.show(progress)).finally(() => bar.stop());
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

const FORMAT = '{phase} {bar} {percentage}%  {value} of {total} {unit}, {rate}/s, {eta_formatted} left';

/** Formats the remaining time: a question mark, instead of `INF`, while it is unknown. */
const formatTime: typeof cliProgress.Format.TimeFormat = (seconds, options, step) =>
  Number.isFinite(seconds) ? cliProgress.Format.TimeFormat(seconds, options, step) : '?';

/** Shows progress on a terminal, in two phases: megabytes read, if the input's size is known, then numbers written. */
class ProgressBar {
  readonly #bar = new cliProgress.SingleBar(
    { format: FORMAT, formatTime, stream: process.stderr, etaBuffer: 50 },
    cliProgress.Presets.rect,
  );
  readonly #size: number | undefined;
  #phase = '';
  #phaseStart = 0;

  /** @param size the input's size in bytes, if known */
  constructor(size: number | undefined) {
    this.#size = size;
  }

  show({ bytes, written, toWrite }: Progress): void {
    if (!process.stderr.isTTY) return;
    if (toWrite !== undefined) this.#update('writing', written, toWrite, 'numbers');
    else if (this.#size !== undefined) this.#update('reading', bytes / 1e6, this.#size / 1e6, 'MB');
  }

  stop(): void {
    this.#bar.stop();
  }

  #update(phase: string, done: number, total: number, unit: string): void {
    if (phase !== this.#phase) {
      this.#bar.stop();
      [this.#phase, this.#phaseStart] = [phase, performance.now()];
      this.#bar.start(Math.round(total), 0, { phase, unit, rate: 0 });
    }
    const seconds = (performance.now() - this.#phaseStart) / 1000;
    this.#bar.update(Math.floor(done), { rate: seconds > 0 ? Math.round(done / seconds) : 0 });
  }
}
