/** Waiting for what happens at its own pace. */
import { setTimeout as sleep } from 'node:timers/promises';

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
 * Repeats a burst of requests until it takes less than a second, then returns or throws what it did. In more time the
 * limit lets more of them pass, and nothing is proven; so it waits until the limit has forgotten them, and tries again.
 */
export async function withinASecond<T>(burst: () => Promise<T>, attempts = 10): Promise<T> {
  for (let attempt = 0; attempt < attempts; attempt++) {
    const begin = performance.now();
    const [end] = await Promise.allSettled([burst()]);
    if (performance.now() - begin < 1000) {
      if (end.status === 'rejected') throw end.reason;
      return end.value;
    }
    await sleep(1050);
  }
  throw new Error(`${attempts} bursts took longer than a second each`);
}
