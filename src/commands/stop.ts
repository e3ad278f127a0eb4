/**
 * The signals that end a command: SIGINT, SIGTERM and SIGHUP (the terminal was closed). The first asks for a clean
 * shutdown, the second to end now. Neither leaves an embedded PostgreSQL running.
 */
import { addAbortListener } from 'node:events';
import { constants } from 'node:os';

/**
 * Signals within this time count as one: Ctrl-C reaches every process of the terminal, and make, npm and npx forward it to
 * their children, which have already received it.
 */
const SAME_SIGNAL_MS = 300;

/** Why a command ended early. */
export class Stopped extends Error {
  readonly signal: NodeJS.Signals;
  constructor(signal: NodeJS.Signals) {
    super(`stopped by ${signal}`);
    this.signal = signal;
  }
  /** As a shell reports it. */
  get exitCode(): number {
    return 128 + constants.signals[this.signal];
  }
}

const [first, second] = [new AbortController(), new AbortController()];

/** Each is aborted, with {@link Stopped} as its reason, by the first and the second signal. */
export const stop = { asked: first.signal, now: second.signal };

/** Takes the signals over from here on. */
export function listenForSignals(): void {
  let last = Number.NEGATIVE_INFINITY;
  const onSignal = (signal: NodeJS.Signals) => {
    if (performance.now() - last < SAME_SIGNAL_MS) return;
    last = performance.now();
    // Writing to a closed terminal fails; that must not prevent a clean shutdown.
    if (signal === 'SIGHUP') for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});
    (stop.asked.aborted ? second : first).abort(new Stopped(signal));
  };
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, onSignal);
}

/** Resolves as `work` does; rejects with the reason of `signal` as soon as it is aborted, and then ignores `work`. */
export function unlessStopped<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const listener = addAbortListener(signal, () => reject(signal.reason));
    work.then(resolve, reject).finally(() => listener[Symbol.dispose]());
  });
}
