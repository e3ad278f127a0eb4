/** Changes by the lines of files, which `import` and `delete` make. */
import { Presets, SingleBar } from 'cli-progress';
import { InvalidArgumentError, Option } from 'commander';
import { type InputFiles, openInputFiles } from '../numbers/inputFiles.js';
import { InputError, sentence } from '../numbers/lines.js';
import { DEFAULT_JOBS, type Progress } from '../numbers/staging.js';
import { report } from './output.js';

const MAX_JOBS = 1000;

/** The option for how many connections write at once. */
export const jobsOption = () =>
  new Option('--jobs <number>', 'connections that write at once').default(DEFAULT_JOBS).argParser((text) => {
    const isCount = /^[1-9][0-9]*$/.test(text) && Number(text) <= MAX_JOBS;
    if (!isCount) throw new InvalidArgumentError(`It must be a whole number from 1 to ${MAX_JOBS}.`);
    return Number(text);
  });

interface Options {
  allowEmpty: boolean;
  /** What the lines should hold. */
  wanted: string;
  /** Makes the change. Returns how many lines took part, and what to report. */
  make(files: InputFiles, onProgress: (progress: Progress) => void): Promise<{ count: number; report: string }>;
}

/** Makes a change by the lines of the files `names`, reports on the standard streams, and sets the exit status. */
export async function changeByFiles(names: string[], { allowEmpty, wanted, make }: Options): Promise<void> {
  const files = await openInputFiles(names);
  const bar = new ProgressBar(files.size);
  try {
    const made = await make(files, (progress) => bar.show(progress)).finally(() => bar.stop());
    await report(made.report);
    if (made.count > 0 || allowEmpty) return;
    // Most likely a mistake: the wrong file, or an earlier program in the pipe that failed.
    console.error(`no ${wanted} in the input; pass --allow-empty if that is intended`);
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    for (const fault of error.faults) console.error(sentence(fault, files.place));
  }
  process.exitCode = 1;
}

/** Progress on a terminal: bytes read of the files' size, if it is known, then numbers written of those to write. */
class ProgressBar {
  readonly #size: number | undefined;
  #bar: SingleBar | undefined;
  #phase = '';

  constructor(size: number | undefined) {
    this.#size = size;
  }

  show({ bytes, written, toWrite }: Progress): void {
    if (!process.stderr.isTTY) return;
    if (toWrite !== undefined) this.#update('writing', written, toWrite, 'numbers');
    else if (this.#size !== undefined) this.#update('reading', bytes / 1e6, this.#size / 1e6, 'MB');
  }

  stop(): void {
    this.#bar?.stop();
  }

  #update(phase: string, done: number, total: number, unit: string): void {
    if (phase !== this.#phase) {
      this.stop();
      this.#phase = phase;
      const format = `${phase} {bar} {percentage}%  {value} of {total} ${unit}, {rate}/s, {eta_formatted} left`;
      this.#bar = new SingleBar({ format, stream: process.stderr, etaBuffer: 50 }, Presets.rect);
      this.#start = performance.now();
      this.#bar.start(Math.round(total), 0, { rate: 0 });
    }
    const rate = Math.round(done / ((performance.now() - this.#start) / 1000));
    this.#bar?.update(Math.floor(done), { rate });
  }

  #start = 0;
}
