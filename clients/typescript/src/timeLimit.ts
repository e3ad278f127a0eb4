/** The longest time of a timer; a longer one would end at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * The time limit of a request, and the signal that ends the request. Not AbortSignal.any: on Node 20, a signal that lives as
 * long as the program would keep the signals of all its requests.
 */
export class TimeLimit {
  private readonly controller = new AbortController();
  private readonly timer: ReturnType<typeof setTimeout>;
  private given: AbortSignal | undefined;

  constructor(milliseconds: number) {
    const end = () => this.controller.abort(new DOMException(message, 'TimeoutError'));
    const message = `no complete response within ${milliseconds} ms`;
    this.timer = setTimeout(end, Math.min(milliseconds, LONGEST_TIMER_MS));
  }

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /** Also ends the request when `signal`, the caller's, is aborted. */
  abortWith(signal: AbortSignal | null | undefined): void {
    this.given = signal ?? undefined;
    if (signal?.aborted) this.abort();
    else signal?.addEventListener('abort', this.abort);
  }

  /** Ends the limit, with the request. */
  end(): void {
    clearTimeout(this.timer);
    this.given?.removeEventListener('abort', this.abort);
  }

  private readonly abort = () => this.controller.abort(this.given?.reason);
}
