/** A deadline for operations that may never finish. */

/**
 * Settles like `operation` if that settles within `limitMs` milliseconds; else rejects with the error that `timeoutError`
 * creates. A response that arrived in time counts, even if this process was too busy to read it before the deadline.
 *
 * Not p-timeout, which creates an error with its stack at each call, even if it is not needed; a request has two deadlines.
 */
export function withDeadline<T>(operation: PromiseLike<T>, limitMs: number, timeoutError: () => Error): Promise<T> {
  return new Promise((resolve, reject) => {
    // After a stall, timers run first; then the event loop reads the responses that have arrived; then setImmediate runs.
    const timer = setTimeout(() => setImmediate(() => reject(timeoutError())), limitMs);
    const settled = operation.then(resolve, reject);
    void settled.then(() => clearTimeout(timer));
  });
}
