/**
 * Keeps requests within the rate limit, also if several processes share one key. A process alone never exceeds the limit.
 * One that shares it gets a 429 now and then, and each halves its pace; it regains it page by page. Without that, a process
 * that is refused would find all slots of every second taken by faster ones, for minutes.
 */
import { isRateLimited, sleep } from './retries.js';

/** The pace of all walks with one client. */
class Pace {
  /** When each slot becomes free; infinity while its request runs. */
  private slots: { freeAt: number }[] = [];
  /** How much of the allowed requests per second this client takes. */
  private share = 1;

  /** Waits for a slot, then calls `send`. */
  async run<T>(perSecond: number, signal: AbortSignal | undefined, send: () => Promise<T>): Promise<T> {
    const slot = await this.takeSlot(perSecond, signal);
    try {
      const result = await send();
      this.share = Math.min(1, this.share + 0.02);
      return result;
    } catch (error) {
      if (isRateLimited(error)) this.share = Math.max(0.1, this.share / 2);
      throw error;
    } finally {
      // Not one second after the request was sent: the service counts it when it arrives, which may be just before the
      // response. The random part leaves room for other processes.
      slot.freeAt = performance.now() + 1000 + Math.random() * 100;
    }
  }

  private async takeSlot(perSecond: number, signal: AbortSignal | undefined): Promise<{ freeAt: number }> {
    for (;;) {
      signal?.throwIfAborted();
      const now = performance.now();
      this.slots = this.slots.filter(({ freeAt }) => freeAt > now);
      if (this.slots.length < Math.max(1, Math.floor(perSecond * this.share))) {
        const slot = { freeAt: Number.POSITIVE_INFINITY };
        this.slots.push(slot);
        return slot;
      }
      // It is unknown when running requests end, so check again soon.
      await sleep(Math.min(50, ...this.slots.map(({ freeAt }) => freeAt - now)), signal);
    }
  }
}

const paces = new WeakMap<object, Pace>();

/** Returns the pace of `api`. */
export function paceOf(api: object): Pace {
  const pace = paces.get(api) ?? new Pace();
  paces.set(api, pace);
  return pace;
}
