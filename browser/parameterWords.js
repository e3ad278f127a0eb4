/**
 * Describes the values of a parameter in words, for the README's table and for /docs. The schemas must
 * not contain `$ref`.
 */

/**
 * Returns, for example, "page size, 1 to 100, default 25".
 * @param {{ title?: string, type?: string | string[], minimum?: number, maximum?: number, minLength?: number,
 *   maxLength?: number, default?: unknown }} schema of a single value
 */
export function valueWords(schema) {
  const words = [schema.title];
  if (schema.type === 'integer') words.push(range(schema.minimum, schema.maximum));
  else words.push(`${range(schema.minLength, schema.maxLength)} characters`);
  if (schema.default !== undefined) words.push(`default ${schema.default}`);
  return words.join(', ');
}

/**
 * Returns how often a parameter may be given: "once" or "up to 50 times".
 * @param {{ items?: object, maxItems?: number }} schema of the parameter
 */
export function timesWords(schema) {
  return schema.items ? `up to ${schema.maxItems} times` : 'once';
}

/**
 * @param {number | undefined} least
 * @param {number | undefined} most
 */
function range(least, most) {
  return least === most ? String(most) : `${least} to ${most}`;
}
