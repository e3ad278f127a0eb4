/** Retries work while a server, by default PostgreSQL, restarts, fails over or can't be reached. */
import { setTimeout as sleep } from 'node:timers/promises';
import { failureOf, isFailover } from './errors.js';

interface Options {
  /** How long to retry after the first failure, in milliseconds. */
  forMs: number;
  /** Milliseconds between the end of an attempt and the next one. */
  everyMs: number;
  /** Ends the wait for the next attempt; its reason is then thrown. */
  signal?: AbortSignal | undefined;
  /** Called with each error. Returns whether a retry may help: by default, if PostgreSQL may be failing over. */
  mayPass?(error: unknown): boolean;
}

/**
 * Runs `work` until it succeeds. It is run again from its beginning, so it must be able to continue what it has done before.
 * @throws its error if no retry helps, or none has helped within `forMs`
 */
export async function retryInOutage<T>(
  work: () => Promise<T>,
  { forMs, everyMs, signal, mayPass = (error) => isFailover(failureOf(error)) }: Options,
): Promise<T> {
  let failingSince: number | undefined;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      failingSince ??= performance.now();
      if (!mayPass(error) || performance.now() - failingSince >= forMs) throw error;
    }
    // An abort ends the wait; then the signal's reason is thrown, not that of the wait.
    await sleep(everyMs, undefined, { signal }).catch(() => {});
    signal?.throwIfAborted();
  }
}
