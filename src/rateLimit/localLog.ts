/** The local sliding log: what this instance knows of each client's last window. */
export class LocalLog {
  readonly #windowMs: number;
  readonly #clients = new Map<string, Known>();
  readonly #sweeper: NodeJS.Timeout;

  constructor(windowMs: number) {
    this.#windowMs = windowMs;
    this.#sweeper = setInterval(() => this.#forgetIdleClients(), 10 * windowMs).unref();
  }

  /** Notes that a request of the client is being decided on, until `end` is called with the decision. */
  begin(client: string): void {
    const known = this.#clients.get(client) ?? { ...UNKNOWN, admitted: [] };
    known.undecided++;
    this.#clients.set(client, known);
  }

  end(client: string, allowed: boolean): void {
    const known = this.#clients.get(client);
    if (!known) return;
    known.undecided--;
    if (allowed) known.admitted.push(performance.now());
    else known.refusedAt = performance.now();
  }

  /** Notes that the shared store has refused the client, and will for another `waitMs` milliseconds. */
  block(client: string, waitMs: number): void {
    const known = this.#clients.get(client);
    if (known) known.blockedUntil = performance.now() + waitMs;
  }

  /** Milliseconds until the shared store could let the client pass again; 0 or less where it may now. */
  blockedFor(client: string): number {
    return (this.#clients.get(client)?.blockedUntil ?? Number.NEGATIVE_INFINITY) - performance.now();
  }

  /** How many requests of the client were let through. */
  count(client: string): number {
    return this.#recent(client).length;
  }

  /**
   * Whether one more request would be within `most`, even if all undecided ones pass and `pending` others come before
   * it; false if one was refused within the window.
   */
  hasRoom(client: string, most: number, pending: number): boolean {
    const known = this.#clients.get(client) ?? UNKNOWN;
    const wasRefused = performance.now() - known.refusedAt < this.#windowMs;
    return !wasRefused && this.count(client) + known.undecided + pending < most;
  }

  /** Milliseconds until the oldest admission of the client leaves the window. */
  wait(client: string): number {
    const [oldest] = this.#recent(client);
    return oldest === undefined ? this.#windowMs : oldest + this.#windowMs - performance.now();
  }

  close(): void {
    clearInterval(this.#sweeper);
  }

  #recent(client: string): readonly number[] {
    const from = performance.now() - this.#windowMs;
    const times = this.#clients.get(client)?.admitted ?? [];
    while (times[0] !== undefined && times[0] <= from) times.shift();
    return times;
  }

  #forgetIdleClients(): void {
    const from = performance.now() - this.#windowMs;
    for (const [client, { undecided, refusedAt }] of this.#clients) {
      if (undecided === 0 && refusedAt <= from && this.count(client) === 0) this.#clients.delete(client);
    }
  }
}

interface Known {
  /** When its requests were let through, oldest first. */
  admitted: number[];
  undecided: number;
  /** When it was last refused. */
  refusedAt: number;
  blockedUntil: number;
}

const UNKNOWN: Known = {
  admitted: [],
  undecided: 0,
  refusedAt: Number.NEGATIVE_INFINITY,
  blockedUntil: Number.NEGATIVE_INFINITY,
};
