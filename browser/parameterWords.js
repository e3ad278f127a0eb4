/**
 * What the contract says about a parameter's values, in words: for the README's table and for each parameter at /docs.
 * Schemas here have had their `$ref`s followed.
 */

/**
 * "page size, 1 to 100, default 25"
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
 * How often a parameter may be given: "once", "up to 50 times"
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
