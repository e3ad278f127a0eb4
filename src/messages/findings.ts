/** What is wrong with a value by the contract's schema, and what to give instead: of a request, and of an import's line. */
import type { ErrorObject } from 'ajv/dist/2020.js';
import type { Schema } from '../contract.js';
import { decodedAgain } from '../request/encoding.js';
import { abridged, hasHidden, quoted, shorten, withoutHidden } from './shorten.js';
import { nearest } from './suggestion.js';

/** What is said where a value fails a keyword of JSON Schema: after a parameter's name, and after a member's path. */
interface Words {
  parameter?(schema: Schema, value: unknown): string;
  member?(schema: Schema, value: unknown): string;
}

const WORDS: Record<string, Words> = {
  enum: {
    parameter: (schema, value) => encodedTwice(String(value)) ?? describeChoice(schema, String(value)),
    member(schema, value) {
      const meant = nearest(String(value), schema.enum ?? []);
      return `must be ${kindOf(schema)}${meant ? `; did you mean ${meant}?` : ''}`;
    },
  },
  format: {
    member(schema, value) {
      // Only at these edges can the offset or the rounding of a time lead out of the years.
      const isAtEdge = schema.format === 'date-time' && /^(?:000[01]|9999)-/.test(String(value));
      const years = 'of the years 1 to 9999 when it is in UTC and rounded to milliseconds';
      return `${OTHERWISE.member(schema, value)}${isAtEdge ? `, ${years}` : ''}`;
    },
  },
  maximum: { parameter: (schema, value) => describeNumber(String(value), schema) },
  maxItems: {
    parameter: (schema, value) => `has ${(value as unknown[]).length} values; at most ${schema.maxItems} are allowed`,
    member: (schema) => `must have at most ${schema.maxItems} entries`,
  },
  maxLength: {
    parameter: (schema, value) =>
      isText(schema)
        ? `has ${charactersOf(String(value))} characters; at most ${schema.maxLength} are allowed`
        : describeForm(schema, value),
    member: (schema) => `must have at most ${schema.maxLength} characters`,
  },
  minimum: { parameter: (schema, value) => describeNumber(String(value), schema) },
  minLength: { member: (schema) => (isText(schema) ? 'must not be empty' : `must be ${kindOf(schema)}`) },
  type: { member: (schema) => `must be ${kindOf(schema)}` },
};

/** For pattern and format. */
const OTHERWISE: Required<Words> = {
  parameter: describeForm,
  member: (schema, value) =>
    isText(schema) ? 'must not contain control characters' : `must be ${kindOf(schema)}${didYouMean(schema, value)}`,
};

/** What is wrong with the value of a parameter that fails a keyword. */
export function parameterFault(keyword: string, schema: Schema, value: unknown): string {
  return (WORDS[keyword]?.parameter ?? OTHERWISE.parameter)(schema, value);
}

/** What is wrong with an item: a reason for each value, even if it fails several keywords. */
export function itemFaults(errors: readonly ErrorObject[]): string[] {
  const byValue = new Map<string, string>();
  for (const error of errors) {
    const member = error.params.additionalProperty ?? error.params.missingProperty ?? '';
    const key = `${error.instancePath} ${member}`;
    // A message about the format says more than one about the length.
    if (byValue.has(key) && error.keyword !== 'pattern' && error.keyword !== 'format') continue;
    if (error.data === '' && byValue.has(key)) continue;
    byValue.set(key, itemFault(error));
  }
  return [...byValue.values()];
}

function itemFault({ instancePath, keyword, params, parentSchema, data }: ErrorObject): string {
  const schema = parentSchema as Schema;
  // `/carrierStatuses/0/carrier` as `carrierStatuses[0].carrier`
  const path = instancePath
    .slice(1)
    .replace(/\/(\d+)/g, '[$1]')
    .replaceAll('/', '.');
  const inside = path && `${path}.`;
  if (keyword === 'additionalProperties') {
    const known = nearest(params.additionalProperty, Object.keys(schema.properties ?? {}));
    const unknown = `${inside}${abridged(params.additionalProperty)} is not a member of a ${schema.title}`;
    return known ? `${unknown}; did you mean ${known}?` : unknown;
  }
  if (keyword === 'required') {
    const isNullable = schema.properties?.[params.missingProperty]?.type?.includes('null');
    return `${inside}${params.missingProperty} is missing${isNullable ? ' (null says that it is not known)' : ''}`;
  }
  if (!path) return `must be a JSON object, a ${schema.title}`;
  // Named only where it isn't what it seems to be.
  const value = typeof data === 'string' && hasHidden(data) ? ` (${quoted(data)})` : '';
  return `${path}${value} ${(WORDS[keyword]?.member ?? OTHERWISE.member)(schema, data)}`;
}

/** Whether a schema is that of a text which only its length and its characters bound. */
function isText({ minLength }: Schema): boolean {
  return minLength === 1;
}

/** Such as "a phone number in E.164, for example +14155550123". */
function kindOf(schema: Schema): string {
  const { type, title, format, examples, enum: values } = schema;
  if (values) return values.length === 2 ? values.join(' or ') : `one of ${values.join(', ')}`;
  if (type === 'object') return `an object, a ${title}`;
  if (type === 'array') return 'an array';
  if (isText(schema)) return Array.isArray(type) ? 'text or null' : 'text';
  return `a ${title ?? format?.toString().toUpperCase()}, for example ${examples?.[0]}`;
}

function describeForm(schema: Schema, value: unknown): string {
  const text = String(value);
  const form = describeValue(schema, text);
  if (isText(schema) || form.endsWith('?')) return form;
  // A raw + in a query is a space: the most common mistake with phone numbers.
  if (text.startsWith(' ') && String(schema.examples?.[0]).startsWith('+')) return `${form}; send its + as %2B`;
  return encodedTwice(text) ?? form;
}

/** Says of a value that it does not have the form that its schema wants, and which value that does was probably meant. */
export function describeValue(schema: Schema, text: string): string {
  const [example] = schema.examples ?? [];
  const form = `${quoted(text)} is not a ${schema.title}${example ? `, for example ${example}` : ''}`;
  return isText(schema) ? form : `${form}${didYouMean(schema, text)}`;
}

/** Returns a hint if only hidden or full-width characters, spaces or punctuation keep a value from having the right form. */
function didYouMean({ pattern, maxLength = 0 }: Schema, value: unknown): string {
  if (typeof value !== 'string' || pattern === undefined || value.length > LONGEST_PASTED * maxLength) return '';
  const seen = withoutHidden(value);
  const meant = [seen, seen.replace(/[^+\p{L}\p{N}]/gu, '')].find(
    (each) => each.length <= maxLength && new RegExp(String(pattern), 'u').test(each),
  );
  return meant === undefined || meant === value ? '' : `; did you mean ${meant}?`;
}

/** A value longer than so many times the longest valid one was not meant as one. */
const LONGEST_PASTED = 4;

/** How many values between commas are examined to tell that the commas were meant to separate them. */
const MAX_PARTS = 3;

function describeChoice({ title, enum: choices = [] }: Schema, text: string): string {
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
  return PLAIN_DIGITS.test(text) ? bounds : (encodedTwice(text) ?? `${bounds}, in plain digits, not ${quoted(text)}`);
}

function encodedTwice(text: string): string | undefined {
  const once = decodedAgain(text);
  return once === undefined ? undefined : `seems to be encoded twice; send ${shorten(encodeURIComponent(once))}`;
}

/** How many characters a decoded text has; one outside the Basic Multilingual Plane is a pair of surrogates. */
function charactersOf(text: string): number {
  return text.length - (text.match(/[\ud800-\udbff]/g)?.length ?? 0);
}
