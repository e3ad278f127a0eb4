/** Bursts of requests within one window of the rate limit, also on a slow machine. */
import { setTimeout as sleep } from 'node:timers/promises';

/** The metrics of the services that run in this process. */
const running = new Set<() => Promise<string>>();

/** Adds the metrics of a running service; returns a function that removes them. */
export function watchStore(metrics: () => Promise<string>): () => void {
  running.add(metrics);
  return () => running.delete(metrics);
}

/** Returns how often the limit's stores of these services failed or timed out. */
async function storeErrors(): Promise<number> {
  const texts = await Promise.all([...running].map((metrics) => metrics()));
  const counts = texts.map((text) => Number(/^rate_limit_store_errors_total (\d+)$/m.exec(text)?.[1]));
  return counts.reduce((sum, count) => sum + count, 0);
}

/**
 * Repeats a burst of requests until it takes less than `limitMs` and the limit's store counts all of them in time, because
 * otherwise the limit rightly lets more of them pass. Returns or throws the result of the last burst.
 */
export async function withinASecond<T>(burst: () => Promise<T>, { limitMs = 1000 } = {}): Promise<T> {
  const attempts = 10;
  for (let attempt = 0; attempt < attempts; attempt++) {
    const errors = await storeErrors();
    const begin = performance.now();
    const [end] = await Promise.allSettled([burst()]);
    if (performance.now() - begin < limitMs && (await storeErrors()) === errors) {
      if (end.status === 'rejected') throw end.reason;
      return end.value;
    }
    await sleep(1050); // all counts have expired then
  }
  throw new Error(`${attempts} bursts took longer than ${limitMs} ms, or the limit’s store timed out`);
}
