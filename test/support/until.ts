/** Waiting for what happens at its own pace. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Counter } from 'prom-client';

/** How often the store of a limit in this process failed or was late. */
let storeErrors = 0;
const counter = Counter.prototype as unknown as { name: string; incWithoutExemplar(...amount: unknown[]): void };
const { incWithoutExemplar: count } = counter;
counter.incWithoutExemplar = function (...amount) {
  if (this.name === 'rate_limit_store_errors_total') storeErrors++;
  count.apply(this, amount);
};

/** Waits until `condition` holds; fails, naming what did not come true, after `timeoutMs`. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what = 'the condition came true',
  timeoutMs = 10_000,
): Promise<void> {
  for (const deadline = Date.now() + timeoutMs; !(await condition()); await sleep(10)) {
    if (Date.now() > deadline) throw new Error(`not within ${timeoutMs} ms: ${what}`);
  }
}

/**
 * Repeats a burst of requests until it takes less than a second and the limit's store answers all of them in time, unless
 * `isStoreDown`; then returns or throws what it did. Otherwise the limit lets more of them pass, and nothing is proven; so it
 * waits until the limit has forgotten them, and tries again.
 */
export async function withinASecond<T>(burst: () => Promise<T>, { isStoreDown = false } = {}): Promise<T> {
  const attempts = 10;
  for (let attempt = 0; attempt < attempts; attempt++) {
    const [begin, errors] = [performance.now(), storeErrors];
    const [end] = await Promise.allSettled([burst()]);
    if (performance.now() - begin < 1000 && (isStoreDown || storeErrors === errors)) {
      if (end.status === 'rejected') throw end.reason;
      return end.value;
    }
    await sleep(1050);
  }
  throw new Error(`${attempts} bursts took longer than a second each, or too long for the limit’s store`);
}
