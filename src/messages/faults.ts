/** Describes what is wrong with values that violate the contract's schemas, in requests and imports. */
import type { ErrorObject } from 'ajv/dist/2020.js';
import type { Schema } from '../contract.js';
import { decodeAgain } from './encoding.js';
import { cut, escapeHidden, quote } from './shown.js';
import { nearest } from './suggestion.js';

/** Returns what is wrong with a value. The message continues the name of the parameter, or the path of the member. */
type Describe = (schema: Schema, value: unknown) => string;

/** The messages for each keyword of JSON Schema. */
const MESSAGES: Record<string, { parameter?: Describe; member?: Describe }> = {
  enum: {
    parameter: (schema, value) => adviseIfEncodedTwice(String(value)) ?? describeChoice(schema, String(value)),
    member(schema, value) {
      const meant = nearest(String(value), schema.enum ?? []);
      return `must be ${expectedKind(schema)}${meant ? `; did you mean ${meant}?` : ''}`;
    },
  },
  format: {
    member(schema, value) {
      // Only in these years can the offset or the rounding of a time lead out of the allowed range.
      const isAtEdge = schema.format === 'date-time' && /^(?:000[01]|9999)-/.test(String(value));
      const range = 'in the years 1 to 9999 after conversion to UTC and rounding to milliseconds';
      return `${describeMember(schema)}${isAtEdge ? `, ${range}` : ''}`;
    },
  },
  maximum: { parameter: (schema, value) => describeNumber(schema, String(value)) },
  maxItems: {
    parameter: (schema, value) => `has ${(value as unknown[]).length} values; at most ${schema.maxItems} are allowed`,
    member: (schema) => `must have at most ${schema.maxItems} entries`,
  },
  maxLength: {
    parameter: (schema, value) =>
      isFreeText(schema)
        ? `has ${[...String(value)].length} characters; at most ${schema.maxLength} are allowed`
        : describeParameter(schema, value),
    member: (schema) => `must have at most ${schema.maxLength} characters`,
  },
  minimum: { parameter: (schema, value) => describeNumber(schema, String(value)) },
  minLength: { member: (schema) => (isFreeText(schema) ? 'must not be empty' : `must be ${expectedKind(schema)}`) },
  type: { member: (schema) => `must be ${expectedKind(schema)}` },
};

/** Returns what is wrong with the value of a parameter that violates `keyword`. */
export function parameterFault(keyword: string, schema: Schema, value: unknown): string {
  return (MESSAGES[keyword]?.parameter ?? describeParameter)(schema, value);
}

/** Returns what is wrong with an item: one message for each invalid value, even if it violates several keywords. */
export function itemFaults(errors: readonly ErrorObject[]): string[] {
  const byValue = new Map<string, string>();
  // An unknown member comes before a missing one: it may be that member, misspelled.
  const unknownFirst = errors.toSorted((a, b) => Number(isUnknown(b)) - Number(isUnknown(a)));
  for (const error of unknownFirst) {
    const member = error.params.additionalProperty ?? error.params.missingProperty ?? '';
    const key = `${error.instancePath} ${member}`;
    // A message about the form is more helpful than one about the length, unless that is that the value is empty.
    const isAboutForm = error.keyword === 'pattern' || error.keyword === 'format';
    if (!byValue.has(key) || (isAboutForm && error.data !== '')) byValue.set(key, itemFault(error));
  }
  return [...byValue.values()];
}

const isUnknown = ({ keyword }: ErrorObject) => keyword === 'additionalProperties';

function itemFault({ instancePath, keyword, params, parentSchema, data }: ErrorObject): string {
  const schema = parentSchema as Schema;
  // `/carrierStatuses/0/carrier` as `carrierStatuses[0].carrier`
  const path = instancePath
    .slice(1)
    .replace(/\/(\d+)/g, '[$1]')
    .replaceAll('/', '.');
  const prefix = path && `${path}.`;
  if (keyword === 'additionalProperties') {
    const known = nearest(params.additionalProperty, Object.keys(schema.properties ?? {}));
    const unknown = `${prefix}${cut(escapeHidden(params.additionalProperty))} is not a member of a ${schema.title}`;
    return known ? `${unknown}; did you mean ${known}?` : unknown;
  }
  if (keyword === 'required') {
    const isNullable = schema.properties?.[params.missingProperty]?.type?.includes('null');
    return `${prefix}${params.missingProperty} is missing${isNullable ? ' (null if it is unknown)' : ''}`;
  }
  if (!path) return `must be a JSON object, a ${schema.title}`;
  // The value is shown only if it has hidden characters.
  const value = typeof data === 'string' && escapeHidden(data) !== data ? ` (${quote(data)})` : '';
  return `${path}${value} ${(MESSAGES[keyword]?.member ?? describeMember)(schema, data)}`;
}

/** Returns whether a schema is for free text: in the contract, a `minLength` of 1, and a pattern that only restricts characters. */
function isFreeText({ minLength }: Schema): boolean {
  return minLength === 1;
}

/** Returns what a value must be, such as "a phone number in E.164, for example +14155550123". */
function expectedKind(schema: Schema): string {
  const { type, title, format, examples, enum: values } = schema;
  if (values) return values.length === 2 ? values.join(' or ') : `one of ${values.join(', ')}`;
  if (type === 'object') return `an object, a ${title}`;
  if (type === 'array') return 'an array';
  if (isFreeText(schema)) return Array.isArray(type) ? 'text or null' : 'text';
  return `a ${title ?? format?.toString().toUpperCase()}, for example ${examples?.[0]}`;
}

function describeMember(schema: Schema): string {
  return isFreeText(schema) ? 'must not contain control characters' : `must be ${expectedKind(schema)}`;
}

function describeParameter(schema: Schema, value: unknown): string {
  const text = String(value);
  const form = describeValue(schema, text);
  if (isFreeText(schema)) return form;
  // A raw + in a query is a space: the most common mistake with phone numbers.
  if (text.startsWith(' ') && String(schema.examples?.[0]).startsWith('+')) return `${form}; send its + as %2B`;
  return adviseIfEncodedTwice(text) ?? form;
}

/** Returns that a text does not have the form that its schema requires. */
export function describeValue({ title, examples: [example] = [] }: Schema, text: string): string {
  return `${quote(text)} is not a ${title}${example ? `, for example ${example}` : ''}`;
}

function describeChoice({ title, enum: choices = [] }: Schema, text: string): string {
  const [first = '', second] = text.split(',', 2);
  if (second !== undefined && nearest(first.trim(), choices) && nearest(second.trim(), choices)) {
    return `${quote(text)} is not a ${title}; commas do not separate values: repeat the parameter for each value`;
  }
  const meant = nearest(text, choices);
  return `${quote(text)} is not a ${title}; ${meant ? `did you mean ${meant}?` : `use one of ${choices.join(', ')}`}`;
}

/** The form of a number. The validator alone would also accept 0x10, 1e1, 5.0, and enough digits for infinity. */
export const PLAIN_DIGITS = /^[0-9]{1,15}$/;

/** Returns what a number must be: "must be a page size from 1 to 100". */
export function describeNumber({ title, minimum, maximum }: Schema, text: string): string {
  const bounds = `must be a ${title} from ${minimum} to ${maximum}`;
  return PLAIN_DIGITS.test(text)
    ? bounds
    : (adviseIfEncodedTwice(text) ?? `${bounds}, in plain digits, not ${quote(text)}`);
}

function adviseIfEncodedTwice(text: string): string | undefined {
  const decoded = decodeAgain(text);
  return decoded === undefined
    ? undefined
    : `seems to be encoded twice; encode the plain value, ${quote(decoded)}, once`;
}
