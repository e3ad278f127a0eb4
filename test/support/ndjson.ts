/** Files of numbers, one item per line. */
import type { BrandedPhoneNumber } from '../../generated/types/models/index.js';

/** Returns a line for each item. */
export const ndjson = (items: readonly unknown[]): string => items.map((item) => `${JSON.stringify(item)}\n`).join('');

/** Returns the items of an export. */
export const itemsOf = (text: string): BrandedPhoneNumber[] =>
  text
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line));
