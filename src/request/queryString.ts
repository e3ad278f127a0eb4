/**
 * The query string, read strictly: what the request validator never sees or lets pass is found here (broken encodings,
 * unknown and repeated parameters, empty values, numbers that are not plain digits). What is left is clean enough for
 * the validator to check against the contract, so that one answer can name the faults of both.
 */
import { listBrandedPhoneNumbers as operation } from '../../generated/types/apis/index.js';
import { contract, type Parameter, parameters } from '../contract.js';
import { decode } from '../messages/encoding.js';
import { describeNumber, PLAIN_DIGITS } from '../messages/findings.js';
import { abridged, hasHidden, shorten } from '../messages/shorten.js';
import { nearest, plain } from '../messages/suggestion.js';
import type { Faults } from '../problem/problem.js';

const MAX_PAIRS = contract.paths[operation.path]?.get?.['x-max-query-pairs'] ?? 0;

/**
 * Reads a query string (what follows the `?`) as the contract's parameters, and adds what is wrong with it to `faults`.
 * Returns the well-formed values of known parameters: a list for each repeatable one. Never throws.
 */
export function parseQueryString(text: string, faults: Faults): Record<string, string | string[]> {
  const values: Record<string, string | string[]> = {};
  const pairs = pairsOf(text);
  if (pairs === undefined) {
    faults.add('', () => `has more than ${MAX_PAIRS} pairs of a name and a value`);
    return values;
  }
  for (const [index, pair] of pairs.entries()) {
    const [, rawName = '', rawValue = ''] = /^([^=]*)=?(.*)$/s.exec(pair) ?? [];
    const name = decode(rawName);
    if (name === undefined) {
      faults.add(rawName, () => BROKEN_ENCODING);
      continue;
    }
    const parameter = parameters.get(name);
    if (!parameter) {
      faults.add(name, () => unknown(shorten(name), pair.includes('=') ? undefined : `${pairs[index - 1]}%26${pair}`));
      continue;
    }
    const value = decode(rawValue);
    const describe = value === undefined ? () => BROKEN_ENCODING : faultOf(value, parameter);
    if (value === undefined || describe) {
      faults.add(name, describe ?? (() => BROKEN_ENCODING));
    } else if (parameter.schema.type === 'array') {
      const list = values[name] as string[] | undefined;
      if (list) list.push(value);
      else values[name] = [value];
    } else if (name in values) {
      faults.add(name, () => 'is given more than once; give it once');
    } else {
      values[name] = value;
    }
  }
  return values;
}

/** The pairs of a query string without the empty ones; undefined if there are too many. */
function pairsOf(text: string): string[] | undefined {
  const pairs: string[] = [];
  for (const [pair] of text.matchAll(/[^&]+/g)) if (pairs.push(pair) > MAX_PAIRS) return undefined;
  return pairs;
}

const BROKEN_ENCODING = 'is not correctly percent-encoded UTF-8; encode each byte as % and two hexadecimal digits';

/** The parameters, by what other APIs call them. */
const synonyms = new Map(
  [...parameters].flatMap(([name, parameter]) => (parameter['x-synonyms'] ?? []).map((other) => [plain(other), name])),
);

/** `joined` is a name without a value and the pair before it, as one pair: `AT&T` means that unless its & is encoded. */
function unknown(name: string, joined?: string): string {
  const bare = name.endsWith(']') ? name.slice(0, name.indexOf('[')) : name;
  const meant = synonyms.get(plain(name)) ?? synonyms.get(plain(bare)) ?? nearest(bare, parameters.keys());
  const isList = parameters.get(meant ?? '')?.schema.type === 'array';
  // Named only where it isn't what it seems to be.
  const none = `is not a parameter${hasHidden(name) ? ` (${abridged(name)})` : ''}`;
  if (isList && name.endsWith(']')) return `${none}; repeat ${meant} without brackets`;
  if (!meant && joined?.includes('=')) return `${none}; an & in a value is sent as %26: ${abridged(joined)}`;
  return `${none}${meant ? `; did you mean ${meant}?` : `; there are ${[...parameters.keys()].join(', ')}`}`;
}

/** What is wrong with a value that the validator would not see as it was sent; undefined if nothing is. */
function faultOf(value: string, { schema }: Parameter): (() => string) | undefined {
  if (value === '') return () => 'is empty; give it a value or leave it out';
  if (schema.type === 'integer' && !PLAIN_DIGITS.test(value)) return () => describeNumber(value, schema);
  return undefined;
}
