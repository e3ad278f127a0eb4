/** Describes the values of a parameter in words, for the README's table, for /docs and for the clients. */
import type { Schema } from '../contract.js';

/** Returns, for example, "page size, 1 to 100, default 25". The schema is that of a single value, without `$ref`. */
export function valueWords(schema: Schema): string {
  const words = [schema.title, rangeWords(schema)];
  if (schema.default !== undefined) words.push(`default ${schema.default}`);
  return words.filter(Boolean).join(', ');
}

/** Returns how often a parameter may be given: "once" or "up to 50 times". */
export function timesWords(schema: Schema): string {
  return schema.items ? `up to ${schema.maxItems} times` : 'once';
}

/** Returns a schema's bounds, such as "1 to 100", "1 to 255 characters" or "up to 1000"; empty if it has none. */
export function rangeWords({ items, maxItems, minimum, maximum, minLength, maxLength }: Schema): string {
  if (items) return `up to ${maxItems}`;
  if (maximum !== undefined) return range(minimum, maximum);
  return maxLength === undefined ? '' : `${range(minLength, maxLength)} characters`;
}

function range(least: number | undefined, most: number): string {
  if (least === undefined) return `up to ${most}`;
  return least === most ? String(most) : `${least} to ${most}`;
}
