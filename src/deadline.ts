/** A deadline for operations that may never finish. */

/**
 * Settles like `operation` if it settles within `limitMs` milliseconds; otherwise rejects with the error that
 * `timeoutError` creates. A response that arrives in time is used even if this process is too busy to read it in time.
 *
 * p-timeout would create an error with its stack at each call, also if the operation is in time.
 */
export function withDeadline<T>(operation: PromiseLike<T>, limitMs: number, timeoutError: () => Error): Promise<T> {
  return new Promise((resolve, reject) => {
    // After a stall, timers run first; then responses that have arrived are read; then setImmediate runs.
    const timer = setTimeout(() => setImmediate(() => reject(timeoutError())), limitMs);
    const settled = operation.then(resolve, reject);
    void settled.then(() => clearTimeout(timer));
  });
}
