/** Says on standard error how far a long command is: with a bar on a terminal, otherwise with a line from time to time. */
import cliProgress from 'cli-progress';
import type { Progress } from '../numbers/staging.js';

const LINE_INTERVAL_MS = 10_000;

/** Runs `work`, and prints `describe()` every ten seconds meanwhile, unless standard error is a terminal. */
export async function withProgressLines<T>(describe: () => string, work: () => Promise<T>): Promise<T> {
  if (process.stderr.isTTY) return work();
  const timer = setInterval(() => console.error(describe()), LINE_INTERVAL_MS).unref();
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}

const FORMAT = '{phase} {bar} {percentage}%  {value} of {total} {unit}, {rate}/s, {eta_formatted} left';

/** Formats the remaining time: a question mark, instead of `INF`, while it is unknown. */
const formatTime: typeof cliProgress.Format.TimeFormat = (seconds, options, step) =>
  Number.isFinite(seconds) ? cliProgress.Format.TimeFormat(seconds, options, step) : '?';

/** Shows progress on a terminal, in two phases: megabytes read, if the input's size is known, then numbers written. */
export class ProgressBar {
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
