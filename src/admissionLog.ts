/** What this instance itself has let through in the last window, by client; forgotten as soon as it is older. */
export class AdmissionLog {
  readonly #window: number;
  readonly #times = new Map<string, number[]>();
  readonly #sweeper: NodeJS.Timeout;

  /** @param window in milliseconds */
  constructor(window: number) {
    this.#window = window;
    this.#sweeper = setInterval(() => this.#forgetIdleClients(), 10 * window).unref();
  }

  add(client: string): void {
    const times = this.#recent(client);
    times.push(performance.now());
    this.#times.set(client, times);
  }

  count(client: string): number {
    return this.#recent(client).length;
  }

  /** Milliseconds until the oldest admission of the client leaves the window. */
  wait(client: string): number {
    const [oldest] = this.#recent(client);
    return oldest === undefined ? this.#window : oldest + this.#window - performance.now();
  }

  close(): void {
    clearInterval(this.#sweeper);
  }

  #recent(client: string): number[] {
    const from = performance.now() - this.#window;
    const times = this.#times.get(client) ?? [];
    while (times[0] !== undefined && times[0] <= from) times.shift();
    return times;
  }

  #forgetIdleClients(): void {
    for (const client of this.#times.keys()) {
      if (this.#recent(client).length === 0) this.#times.delete(client);
    }
  }
}
