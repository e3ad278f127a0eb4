/** Handles together what arrives while a statement runs, by the next statement. */

/**
 * Returns a function that handles items in batches, one batch at a time. `handle` gets the items that have arrived since the
 * previous batch began, and resolves to a function that returns the result of an item, or throws its error.
 * @param untilTurn is awaited before each batch begins; more items may arrive meanwhile
 */
export function inBatches<T, R>(
  untilTurn: () => Promise<unknown>,
  handle: (items: readonly T[]) => Promise<(item: T) => R>,
): (item: T) => Promise<R> {
  let waiting: { items: T[]; results: Promise<(item: T) => R> } | undefined;
  let previous: Promise<unknown> = Promise.resolve();
  function begin() {
    const items: T[] = [];
    const turn = previous.then(untilTurn).then(() => (waiting = undefined));
    const results = turn.then(() => handle(items));
    previous = results.catch(() => {});
    return { items, results };
  }
  return async (item) => {
    waiting ??= begin();
    waiting.items.push(item);
    return (await waiting.results)(item);
  };
}
