/** Messages for what the validator found, which say what to send instead. */
import { parameters, resolve, type Schema } from '../contract.js';
import { shorten } from '../messages/shorten.js';
import { nearest } from '../messages/suggestion.js';
import type { Faults } from '../problem/faults.js';
import { decodedAgain } from './encoding.js';

/** One finding of express-openapi-validator. */
export interface Finding {
  /** Such as `/query/status/1`. */
  path: string;
  /** The keyword of JSON Schema that failed, then `.openapi.validation`. */
  errorCode?: string;
  message: string;
}

/** How many values between commas are examined to tell that the commas were meant to separate them. */
const MAX_PARTS = 3;

/** Adds the validator's findings about `query` to `faults`: one for each value, even if it fails several keywords. */
export function addFindings(findings: readonly Finding[], query: Record<string, unknown>, faults: Faults): void {
  const seen = new Set<string>();
  for (const { path, errorCode, message } of findings) {
    const [, , name = '', index] = path.split('/');
    const key = `${name}/${index ?? ''}`;
    if (seen.has(key)) continue;
    seen.add(key);
    const sent = query[name];
    const value = index === undefined ? sent : (sent as unknown[])[Number(index)];
    const schema = parameters.get(name)?.schema;
    faults.add(name, () =>
      schema ? describe(value, index === undefined ? schema : resolve(schema.items ?? {}), errorCode) : message,
    );
  }
}

function describe(value: unknown, schema: Schema, errorCode = ''): string {
  const keyword = errorCode.split('.')[0];
  if (Array.isArray(value)) return `has ${value.length} values; at most ${schema.maxItems} are allowed`;
  const text = String(value);
  if (schema.type === 'integer') return describeNumber(text, schema);
  const choices = schema.enum ?? [];
  if (choices.length > 0) return encodedTwice(text) ?? describeChoice(text, schema.title, choices);
  const isName = !schema.format && schema.maxLength !== undefined && schema.maxLength >= 100;
  if (isName && keyword === 'maxLength') {
    return `has ${charactersOf(text)} characters; at most ${schema.maxLength} are allowed`;
  }
  const [example] = schema.examples ?? [];
  const form = `${quoted(text)} is not a ${schema.title}${example ? `, for example ${example}` : ''}`;
  // A raw + in a query is a space: the most common mistake with phone numbers.
  if (text.startsWith(' ') && String(example).startsWith('+')) return `${form}; send its + as %2B`;
  // A name may hold a % and two hexadecimal digits.
  return (isName ? undefined : encodedTwice(text)) ?? form;
}

function describeChoice(text: string, title: string | undefined, choices: readonly string[]): string {
  const parts = text.split(',', MAX_PARTS);
  if (parts.length > 1 && parts.every((part) => nearest(part.trim(), choices))) {
    return `${quoted(text)} is not a ${title}; commas do not separate values: repeat the parameter for each`;
  }
  const meant = nearest(text, choices);
  return `${quoted(text)} is not a ${title}; ${meant ? `did you mean ${meant}?` : `use one of ${choices.join(', ')}`}`;
}

/** The allowed form of a number: the validator also accepts 0x10, 1e1, 5.0 and enough digits to make infinity. */
export const PLAIN_DIGITS = /^[0-9]{1,15}$/;

/** Says what a number has to be: "must be a page size from 1 to 100". */
export function describeNumber(text: string, { title, minimum, maximum }: Schema): string {
  const bounds = `must be a ${title} from ${minimum} to ${maximum}`;
  return PLAIN_DIGITS.test(text) ? bounds : (encodedTwice(text) ?? `${bounds}, in plain digits`);
}

function encodedTwice(text: string): string | undefined {
  const once = decodedAgain(text);
  return once === undefined ? undefined : `seems to be encoded twice; send ${shorten(encodeURIComponent(once))}`;
}

/** How many characters a decoded text has; one outside the Basic Multilingual Plane is a pair of surrogates. */
function charactersOf(text: string): number {
  return text.length - (text.match(/[\ud800-\udbff]/g)?.length ?? 0);
}

/** A value as it was sent, short and printable. */
function quoted(text: string): string {
  return JSON.stringify(shorten(text));
}
