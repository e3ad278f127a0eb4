/** Deadlines for what may never answer. */

/**
 * Resolves as `answer` does, if that is within `limitMs` milliseconds; else rejects with what `onLate` returns. An
 * answer that came while this process stalled past the deadline still counts.
 *
 * Not p-timeout, which creates an error with its stack at each call, needed or not; a request has two deadlines.
 */
export function withDeadline<T>(answer: PromiseLike<T>, limitMs: number, onLate: () => Error): Promise<T> {
  return new Promise((resolve, reject) => {
    // After a stall, timers run before the event loop reads the answers that have arrived meanwhile.
    const timer = setTimeout(() => setImmediate(() => reject(onLate())), limitMs);
    const ended = answer.then(resolve, reject);
    void ended.then(() => clearTimeout(timer));
  });
}
