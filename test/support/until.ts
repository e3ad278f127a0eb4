/** Waiting for a condition, and repeating work meanwhile. */
import { setTimeout as sleep } from 'node:timers/promises';

/** Waits until `condition` holds; throws with `what`, which describes the condition, after `timeoutMs`. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what = 'the condition came true',
  timeoutMs = 30_000,
): Promise<void> {
  for (const deadline = Date.now() + timeoutMs; !(await condition()); await sleep(10)) {
    if (Date.now() > deadline) throw new Error(`timed out after ${timeoutMs} ms: ${what}`);
  }
}

/** Repeats `work` in `count` loops at once. Returns a function that ends them, and waits until they have ended. */
export function repeat(count: number, work: (loop: number) => Promise<unknown>): () => Promise<void> {
  let isOver = false;
  const loops = Array.from({ length: count }, async (_, loop) => {
    while (!isOver) await work(loop);
  });
  return async () => {
    isOver = true;
    await Promise.all(loops);
  };
}
