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
  /** The batch that items join, until it is handled. */
  let open: { items: T[]; results: Promise<(item: T) => R> } | undefined;
  let previousEnd: Promise<unknown> = Promise.resolve();
  function openBatch() {
    const items: T[] = [];
    const results = previousEnd.then(untilTurn).then(() => {
      open = undefined;
      return handle(items);
    });
    previousEnd = results.catch(() => {});
    return { items, results };
  }
  return async (item) => {
    open ??= openBatch();
    open.items.push(item);
    return (await open.results)(item);
  };
}
