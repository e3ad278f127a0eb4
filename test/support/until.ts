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
