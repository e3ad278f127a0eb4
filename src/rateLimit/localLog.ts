/** What this instance knows about each client's last window. */
export class LocalLog {
  readonly #windowMs: number;
  /** The clients of this window and those of the one before; older ones are forgotten together. */
  #newer = new Map<string, Known>();
  #older = new Map<string, Known>();
  #begun = performance.now();

  constructor(windowMs: number) {
    this.#windowMs = windowMs;
  }

  /** Records that a request of the client, which came at `moment`, was let through. */
  admit(client: string, moment: number): void {
    const { admitted } = this.#keep(client);
    // In order, even though the answers for earlier requests may come later.
    let place = admitted.length;
    while (place > 0 && (admitted[place - 1] ?? 0) > moment) place--;
    admitted.splice(place, 0, moment);
  }

  /** Records that the shared store has refused the client, and will for another `waitMs` milliseconds. */
  block(client: string, waitMs: number): void {
    this.#keep(client).blockedUntil = performance.now() + waitMs;
  }

  /** Milliseconds until the shared store could let the client pass again; 0 or less where it may now. */
  blockedFor(client: string): number {
    return (this.#find(client)?.blockedUntil ?? 0) - performance.now();
  }

  /** How many requests of the client were let through. */
  count(client: string): number {
    return this.#recent(client).length;
  }

  /** Milliseconds until the oldest admission of the client leaves the window. */
  wait(client: string): number {
    const [oldest] = this.#recent(client);
    return oldest === undefined ? this.#windowMs : oldest + this.#windowMs - performance.now();
  }

  /** How many clients it knows. */
  get size(): number {
    return this.#newer.size + this.#older.size;
  }

  #recent(client: string): readonly number[] {
    const from = performance.now() - this.#windowMs;
    const times = this.#find(client)?.admitted ?? [];
    while (times[0] !== undefined && times[0] <= from) times.shift();
    return times;
  }

  #find(client: string): Known | undefined {
    return this.#newer.get(client) ?? this.#older.get(client);
  }

  /** What is recorded for the client, kept for another window at least. */
  #keep(client: string): Known {
    const now = performance.now();
    if (now - this.#begun > this.#windowMs) {
      this.#older = this.#newer;
      this.#newer = new Map();
      this.#begun = now;
    }
    const known = this.#find(client) ?? { admitted: [], blockedUntil: 0 };
    this.#newer.set(client, known);
    return known;
  }
}

interface Known {
  /** When its requests that were let through had come, oldest first. */
  admitted: number[];
  blockedUntil: number;
}
