/**
 * The signals that end a command: SIGINT, SIGTERM and SIGHUP (the terminal was closed). The first requests a clean
 * shutdown, the second ends the command at once. Neither leaves an embedded PostgreSQL running.
 */
import { addAbortListener } from 'node:events';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/**
 * Signals within this time count as one: Ctrl-C reaches every process of the terminal, and make, npm and npx forward it
 * to their children, which have already received it.
 */
const SAME_SIGNAL_MS = 300;

export class Stopped extends Error {
  readonly signal: NodeJS.Signals;
  constructor(signal: NodeJS.Signals) {
    super(`stopped by ${signal}`);
    this.signal = signal;
  }
}

/** Aborted by the first and the second signal that this process receives; their reason is {@link Stopped}. */
export interface Signals {
  first: AbortSignal;
  second: AbortSignal;
}

/** Replaces Node's handling of the signals. */
export function listenForSignals(): Signals {
  const [first, second] = [new AbortController(), new AbortController()];
  let lastSignalAt = Number.NEGATIVE_INFINITY;
  const onSignal = (signal: NodeJS.Signals) => {
    if (performance.now() - lastSignalAt < SAME_SIGNAL_MS) return;
    lastSignalAt = performance.now();
    // Writing to a closed terminal fails; that must not prevent a clean shutdown.
    if (signal === 'SIGHUP') for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});
    (first.signal.aborted ? second : first).abort(new Stopped(signal));
  };
  for (const signal of SIGNALS) process.on(signal, onSignal);
  return { first: first.signal, second: second.signal };
}

/**
 * Exits with `process.exitCode`; if `signal` ended the command, by its default action. Otherwise Node would first wait for each
 * thread that opens, reads or writes a named pipe, which only the pipe's other end can change. Process 1 of a container ignores
 * the default action, and Windows has none: they exit with the status.
 */
export function exit(signal?: NodeJS.Signals): never {
  // After the listeners that clean up.
  process.once('exit', () => {
    for (const name of SIGNALS) process.removeAllListeners(name);
    if (signal && process.platform !== 'win32') process.kill(process.pid, signal);
  });
  process.exit();
}

/** Settles as `work` does, or rejects with the signal's reason when the signal is aborted; `work` is then abandoned. */
export function abortable<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const listener = addAbortListener(signal, () => reject(signal.reason));
    work.then(resolve, reject).finally(() => listener[Symbol.dispose]());
  });
}
