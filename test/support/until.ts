/** Waiting for a condition. */
import { setTimeout as sleep } from 'node:timers/promises';

/** Waits until `condition` holds; throws with `what`, which describes the condition, after `timeoutMs`. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what = 'the condition came true',
  timeoutMs = 10_000,
): Promise<void> {
  for (const deadline = Date.now() + timeoutMs; !(await condition()); await sleep(10)) {
    if (Date.now() > deadline) throw new Error(`timed out after ${timeoutMs} ms: ${what}`);
  }
}
