/** Bursts of requests that a slow machine repeats, so that the limit sees them as it would on a fast one. */
import { setTimeout as sleep } from 'node:timers/promises';

/** The metrics of the services that run in this process. */
const running = new Set<() => Promise<string>>();

/** Has bursts look at the metrics of a service, as Prometheus gets them, until the function that it returns is called. */
export function watchStore(metrics: () => Promise<string>): () => void {
  running.add(metrics);
  return () => running.delete(metrics);
}

/** How often the stores of the limits of all these services failed or were late. */
async function storeErrors(): Promise<number> {
  const texts = await Promise.all([...running].map((metrics) => metrics()));
  const counts = texts.map((text) => Number(/^rate_limit_store_errors_total (\d+)$/m.exec(text)?.[1]));
  return counts.reduce((sum, count) => sum + count, 0);
}

/**
 * Repeats a burst of requests until it takes less than `limitMs`, and the limit's store counts all of them in time; then
 * returns or throws what it did. Otherwise the limit lets more of them pass, and nothing is proven; so it waits until the
 * limit has forgotten them, and tries again.
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
    await sleep(1050);
  }
  throw new Error(`${attempts} bursts took longer than ${limitMs} ms each, or too long for the limit’s store`);
}
