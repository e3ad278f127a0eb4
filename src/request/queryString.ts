/**
 * The query string, read strictly: what the request validator never sees or lets pass is found here (broken encodings,
 * unknown and repeated parameters, empty values, numbers that are not plain digits). What is left is clean enough for
 * the validator to judge by the contract, so that one answer can name the faults of both.
 */
import type { Fault } from '../../generated/types/models/index.js';
import { type Parameter, parameters } from '../contract.js';
import { nearest, plain } from '../suggestion.js';
import { bounds } from './faultMessages.js';

interface QueryString {
  /** The well-formed values of known parameters: a list for each repeatable one. */
  values: Record<string, string | string[]>;
  faults: Fault[];
}

/** Reads a query string (what follows the `?`) as the contract's parameters. Never throws. */
export function parseQueryString(text: string): QueryString {
  const values: Record<string, string | string[]> = {};
  const faults: Fault[] = [];
  for (const pair of text.split('&').filter((part) => part !== '')) {
    const [rawName = '', ...rest] = pair.split('=');
    const name = decode(rawName);
    if (name === undefined) {
      faults.push({ parameter: rawName, detail: BROKEN_ENCODING });
      continue;
    }
    const parameter = parameters.get(name);
    if (!parameter) {
      faults.push({ parameter: name, detail: unknown(name) });
      continue;
    }
    const value = decode(rest.join('='));
    const detail = value === undefined ? BROKEN_ENCODING : faultOf(value, parameter);
    if (value === undefined || detail) {
      faults.push({ parameter: name, detail: detail ?? BROKEN_ENCODING });
    } else if (parameter.schema.type === 'array') {
      const list = values[name] as string[] | undefined;
      if (list) list.push(value);
      else values[name] = [value];
    } else if (name in values) {
      faults.push({ parameter: name, detail: 'is given more than once; give it once' });
    } else {
      values[name] = value;
    }
  }
  return { values, faults };
}

const BROKEN_ENCODING = 'is not correctly percent-encoded UTF-8; encode each byte as % and two hexadecimal digits';

/** Undoes the encoding of forms: percent-encoding, and `+` for a space. Undefined where it is broken. */
function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return undefined;
  }
}

/** The parameters by what other APIs call them. */
const synonyms = new Map(
  [...parameters].flatMap(([name, parameter]) => (parameter['x-synonyms'] ?? []).map((other) => [plain(other), name])),
);

function unknown(name: string): string {
  const bare = name.replace(/\[.*\]$/, '');
  const meant = synonyms.get(plain(name)) ?? synonyms.get(plain(bare)) ?? nearest(bare, parameters.keys());
  const isList = parameters.get(meant ?? '')?.schema.type === 'array';
  if (isList && name.endsWith(']')) return `is not a parameter; repeat ${meant} without brackets`;
  return `is not a parameter${meant ? `; did you mean ${meant}?` : `; there are ${[...parameters.keys()].join(', ')}`}`;
}

function faultOf(value: string, { schema }: Parameter): string | undefined {
  if (value === '') return 'is empty; give it a value or leave it out';
  // The validator accepts 0x10, 1e1 and 5.0 as integers, and enough digits to make infinity.
  if (schema.type === 'integer' && !/^[0-9]{1,15}$/.test(value)) return `must be ${bounds(schema)}, in plain digits`;
  const once = decodedAgain(value);
  if (once !== undefined) return `seems to be encoded twice; send ${encodeURIComponent(once)}`;
  return undefined;
}

/**
 * What a value means if it was encoded twice; undefined if it was not. No name that a carrier or a person gives has a %
 * and two hexadecimal digits, so such a value would silently match nothing.
 */
function decodedAgain(value: string): string | undefined {
  const decoded = /%[0-9a-f]{2}/i.test(value) ? decode(value) : undefined;
  return decoded === undefined || CONTROL_CHARACTER.test(decoded) ? undefined : decoded;
}

const CONTROL_CHARACTER = /\p{Cc}/u;
