/** What this instance itself knows of each client's last window; forgotten as soon as it is older. */
export class AdmissionLog {
  readonly #window: number;
  readonly #clients = new Map<string, Known>();
  readonly #sweeper: NodeJS.Timeout;

  /** @param window in milliseconds */
  constructor(window: number) {
    this.#window = window;
    this.#sweeper = setInterval(() => this.#forgetIdleClients(), 10 * window).unref();
  }

  /** A request of the client is being decided on, until `end` tells how. */
  begin(client: string): void {
    const known = this.#clients.get(client) ?? { admitted: [], undecided: 0, refusedAt: Number.NEGATIVE_INFINITY };
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

  /** How many requests of the client were let through. */
  count(client: string): number {
    return this.#recent(client).length;
  }

  /** Whether one request more would be within `most`, also if all that are being decided on pass, and none was refused. */
  hasRoom(client: string, most: number): boolean {
    const known = this.#clients.get(client);
    if (!known) return true;
    const wasRefused = performance.now() - known.refusedAt < this.#window;
    return !wasRefused && this.count(client) + known.undecided < most;
  }

  /** Milliseconds until the oldest admission of the client leaves the window. */
  wait(client: string): number {
    const [oldest] = this.#recent(client);
    return oldest === undefined ? this.#window : oldest + this.#window - performance.now();
  }

  close(): void {
    clearInterval(this.#sweeper);
  }

  #recent(client: string): readonly number[] {
    const from = performance.now() - this.#window;
    const times = this.#clients.get(client)?.admitted ?? [];
    while (times[0] !== undefined && times[0] <= from) times.shift();
    return times;
  }

  #forgetIdleClients(): void {
    const from = performance.now() - this.#window;
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
}
