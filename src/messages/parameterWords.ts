/** Describes the values of a parameter in words, for the README's table, for /docs and for the clients. */
import type { Schema } from '../contract.js';

/** Returns, for example, "page size, 1 to 100, default 25". The schema is that of a single value, without `$ref`. */
export function valueWords(schema: Schema): string {
  const words = [schema.title];
  if (schema.type === 'integer') words.push(range(schema.minimum, schema.maximum));
  else words.push(`${range(schema.minLength, schema.maxLength)} characters`);
  if (schema.default !== undefined) words.push(`default ${schema.default}`);
  return words.join(', ');
}

/** Returns how often a parameter may be given: "once" or "up to 50 times". */
export function timesWords(schema: Schema): string {
  return schema.items ? `up to ${schema.maxItems} times` : 'once';
}

function range(least: number | undefined, most: number | undefined): string {
  return least === most ? String(most) : `${least} to ${most}`;
}
