/** Deadlines for operations that may never finish. */

/**
 * Resolves as `answer` does, if it does so within `limitMs` milliseconds; else rejects with what `onLate` returns. An
 * answer that arrived while this process was stalled past the deadline still counts.
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
