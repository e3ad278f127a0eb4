/** One line of an import: read, and held against the contract's own schema. */
import { isUtf8 } from 'node:buffer';
import { Ajv2020, type ErrorObject } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import type { BrandedPhoneNumber, CarrierStatus } from '../../generated/types/models/index.js';
import { contract, resolve, type Schema } from '../contract.js';
import { nearest } from '../suggestion.js';
import { LONGEST_LINE } from './lines.js';

type Optional<T, K extends keyof T> = Omit<T, K> & Partial<Pick<T, K>>;

/** A number as a line gives it, its times in UTC with milliseconds. */
export type GivenNumber = Optional<
  Omit<BrandedPhoneNumber, 'status' | 'carrierStatuses'>,
  'id' | 'createdAt' | 'updatedAt'
> & { carrierStatuses: Optional<CarrierStatus, 'createdAt'>[] };

/** Says all that is wrong with a line, to the person who made it. */
export class LineError extends Error {}

/** A person fixes the first few and tries again. */
const MOST_REASONS = 5;

/**
 * Reads a line, without its line feed.
 * @returns undefined for a blank line
 * @throws LineError
 */
export function readLine(bytes: Buffer): GivenNumber | undefined {
  if (bytes.length > LONGEST_LINE) throw new LineError(`is longer than ${LONGEST_LINE / 1024 / 1024} MiB`);
  if (!isUtf8(bytes)) throw new LineError('is not valid UTF-8');
  const text = bytes.toString();
  if (/^[ \t\r]*$/.test(text)) return undefined;
  const item = withoutEmptyTexts(parse(text));
  if (!isGivenNumber(item)) throw new LineError(reasons(isGivenNumber.errors ?? []));
  const faults = [...repeatedMembers(item, text), ...repeatedEntries(item), ...loneSurrogates(item, text)];
  if (faults.length > 0) throw new LineError(enumerate(faults));
  return withTimesInUtc(item);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new LineError(`is not valid JSON: ${shown((error as Error).message)}`);
  }
}

/** Members given twice in one object, of which JSON.parse would silently keep the last. */
function repeatedMembers(item: GivenNumber, text: string): string[] {
  let members = Object.keys(item).length + Object.keys(item.businessProfile).length;
  for (const entry of item.carrierStatuses) members += Object.keys(entry).length;
  // A colon follows each member's name, so where no more quotes are followed by colons, no member is repeated.
  if (text.match(/"\s*:/g)?.length === members) return [];
  const objects: Set<string>[] = [];
  const repeated = new Set<string>();
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"(?:\s*:)?|[{}]/g)) {
    if (token === '{') objects.push(new Set());
    if (token === '}') objects.pop();
    if (!token.endsWith(':')) continue;
    const name: string = JSON.parse(token.slice(0, -1));
    if (objects.at(-1)?.has(name)) repeated.add(name);
    objects.at(-1)?.add(name);
  }
  return [...repeated].map((name) => `${shown(name)} is given twice in one object`);
}

function repeatedEntries({ carrierStatuses }: GivenNumber): string[] {
  const pairs = new Set<string>();
  for (const { carrier, feature } of carrierStatuses) pairs.add(`${feature} ${carrier}`);
  if (pairs.size === carrierStatuses.length) return [];
  const repeated = carrierStatuses.filter(({ carrier, feature }) => !pairs.delete(`${feature} ${carrier}`));
  return repeated.map(({ carrier, feature }) => `carrierStatuses has two entries for ${carrier} and ${feature}`);
}

/** Halves of surrogate pairs, which are no characters and which PostgreSQL refuses; only escapes can bring them in. */
function loneSurrogates(item: GivenNumber, text: string): string[] {
  if (!text.includes('\\u')) return [];
  // Member by member, and nothing of the status, which may be anything and nested to any depth.
  const { status: _ignored, ...members } = item as GivenNumber & { status?: unknown };
  return [members, item.businessProfile, ...item.carrierStatuses]
    .flatMap((object) => Object.entries(object))
    .filter(([, value]) => typeof value === 'string' && /\p{Surrogate}/u.test(value))
    .map(([name]) => `${shown(name)} has half of a surrogate pair (\\ud800 to \\udfff)`);
}

/**
 * What to do where a file that begins with this line is no NDJSON but compressed, UTF-16, a page of the API, a JSON array,
 * JSON over several lines or CSV; undefined for any other line.
 */
export function hintOfFormat(bytes: Buffer): string | undefined {
  if (bytes[0] === 0x1f && bytes[1] === 0x8b) {
    return 'is compressed; an import takes it as gunzip --stdout FILE | branded-phone-numbers import -';
  }
  if (/^(fffe|feff)/.test(bytes.toString('hex', 0, 2))) return 'is UTF-16; an import takes UTF-8';
  const text = bytes.subarray(0, 1000).toString().trim();
  if (text.startsWith('['))
    return `begins a JSON array; an import takes one item a line, as jq -c '.[]' FILE writes them`;
  if (/^\{\s*"(items|nextCursor)"\s*:/.test(text)) {
    return `is a page of the API; an import takes one item a line, as jq -c '.items[]' FILE writes them`;
  }
  if (text === '{') {
    return `begins JSON over several lines; an import takes one item a line, as jq -c . FILE writes them (jq -c '.items[]' FILE for a page of the API)`;
  }
  if (/^[^{]*[\w"]\s*[,;\t]\s*\S/.test(text)) {
    return 'looks like CSV; an import takes NDJSON: one item a line, as the command export writes them';
  }
  return undefined;
}

const RFC_3339 =
  /^(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/i;

/** A time that both the database and an answer can show: no leap second, and in UTC of the years 1 to 9999. */
function isTime(text: string): boolean {
  if (!RFC_3339.test(text)) return false;
  if (text[8] === '3' || text.slice(8, 10) === '29') {
    const [year, month, day] = text.slice(0, 10).split('-').map(Number) as [number, number, number];
    // The calendar repeats every 400 years, and Date.UTC takes years below 100 for those after 1900.
    if (day > new Date(Date.UTC(2000 + (year % 400), month, 0)).getUTCDate()) return false;
  }
  return /^(?!0000)\d{4}-/.test(inUtc(text));
}

/** The same time, in UTC with milliseconds. */
function inUtc(text: string): string {
  return text.length === 24 && text[10] === 'T' && text.endsWith('Z')
    ? text
    : new Date(text.toUpperCase()).toISOString();
}

/** Where a text may be null, an empty one means the same: that it is not known. */
function withoutEmptyTexts(item: unknown): unknown {
  if (typeof item !== 'object' || item === null) return item;
  for (const name of NULLABLE)
    if ((item as Record<string, unknown>)[name] === '') Object.assign(item, { [name]: null });
  return item;
}

function withTimesInUtc(item: GivenNumber): GivenNumber {
  for (const timed of [item, ...item.carrierStatuses]) {
    if (timed.createdAt !== undefined) timed.createdAt = inUtc(timed.createdAt);
  }
  if (item.updatedAt !== undefined) item.updatedAt = inUtc(item.updatedAt);
  return item;
}

/** The contract's item, except that an import may leave some members out, and may have none that the contract lacks. */
function givenNumberSchema(): Schema {
  const schema = closed(contract.components.schemas.BrandedPhoneNumber as Schema);
  const entry = schema.properties?.carrierStatuses?.items as Schema;
  schema.properties = { ...schema.properties, status: {} };
  schema.required = without(schema.required, ['id', 'status', 'createdAt', 'updatedAt']);
  entry.required = without(entry.required, ['createdAt']);
  return schema;
}

/** A copy with its references resolved, its objects closed to unknown members, and only values that this version knows. */
function closed(reference: Schema): Schema {
  const found = resolve(reference);
  const schema = { ...resolve<Schema>(found['x-known-values'] ?? found) };
  if (schema.items) schema.items = closed(schema.items);
  if (schema.properties) {
    schema.additionalProperties = false;
    schema.properties = Object.fromEntries(
      Object.entries(schema.properties).map(([name, property]) => [name, closed(property)]),
    );
  }
  return schema;
}

function without(names: readonly string[] = [], optional: readonly string[]): string[] {
  return names.filter((name) => !optional.includes(name));
}

const numberSchema = givenNumberSchema();
const NULLABLE = Object.entries(numberSchema.properties ?? {})
  .filter(([, { type }]) => type?.includes('null'))
  .map(([name]) => name);

const ajv = new Ajv2020({ allErrors: true, verbose: true, allowUnionTypes: true });
addFormats.default(ajv, ['uuid']);
ajv.addFormat('date-time', isTime);
const isGivenNumber = ajv.compile<GivenNumber>(numberSchema);

/** All findings in one sentence: one for each value, however many keywords it fails. */
function reasons(errors: readonly ErrorObject[]): string {
  const byValue = new Map<string, string>();
  for (const error of errors) {
    const member = error.params.additionalProperty ?? error.params.missingProperty ?? '';
    const key = `${error.instancePath} ${member}`;
    // A message about the format says more than one about the length.
    if (byValue.has(key) && error.keyword !== 'pattern' && error.keyword !== 'format') continue;
    if (error.data === '' && byValue.has(key)) continue;
    byValue.set(key, reason(error));
  }
  return enumerate([...byValue.values()]);
}

function reason({ instancePath, keyword, params, parentSchema, data }: ErrorObject): string {
  const schema = parentSchema as Schema;
  const path = pathOf(instancePath);
  const inside = path && `${path}.`;
  switch (keyword) {
    case 'additionalProperties': {
      const known = nearest(params.additionalProperty, Object.keys(schema.properties ?? {}));
      const unknown = `${inside}${shown(params.additionalProperty)} is not a member of a ${schema.title}`;
      return known ? `${unknown}; did you mean ${known}?` : unknown;
    }
    case 'required': {
      const isNullable = schema.properties?.[params.missingProperty]?.type?.includes('null');
      return `${inside}${params.missingProperty} is missing${isNullable ? ' (null says that it is not known)' : ''}`;
    }
    case 'type':
      return path ? `${path} must be ${kindOf(schema)}` : `must be a JSON object, a ${schema.title}`;
    case 'enum': {
      const meant = nearest(String(data), schema.enum ?? []);
      return `${path} must be ${kindOf(schema)}${meant ? `; did you mean ${meant}?` : ''}`;
    }
    case 'minLength':
      return schema.minLength === 1 ? `${path} must not be empty` : `${path} must be ${kindOf(schema)}`;
    case 'maxLength':
      return `${path} must have at most ${params.limit} characters`;
    case 'maxItems':
      return `${path} must have at most ${params.limit} entries`;
    default: // pattern, format
      return schema.minLength === 1
        ? `${path} must not contain control characters`
        : `${path} must be ${kindOf(schema)}`;
  }
}

/** Such as "a phone number in E.164, for example +14155550123". */
function kindOf({ type, title, format, minLength, examples, enum: values }: Schema): string {
  if (values) return values.length === 2 ? values.join(' or ') : `one of ${values.join(', ')}`;
  if (type === 'object') return `an object, a ${title}`;
  if (type === 'array') return 'an array';
  if (minLength === 1) return Array.isArray(type) ? 'text or null' : 'text';
  return `a ${title ?? format?.toString().toUpperCase()}, for example ${examples?.[0]}`;
}

/** `/carrierStatuses/0/carrier` as `carrierStatuses[0].carrier`. */
function pathOf(pointer: string): string {
  return pointer
    .slice(1)
    .replace(/\/(\d+)/g, '[$1]')
    .replaceAll('/', '.');
}

function enumerate(faults: readonly string[]): string {
  const more = faults.length - MOST_REASONS;
  return faults.slice(0, MOST_REASONS).join('; ') + (more > 0 ? `; and ${more} more` : '');
}

/** Text from the file, shortened, and without characters that could control a terminal. */
function shown(text: string): string {
  const short = text.length > 100 ? `${text.slice(0, 100)}…` : text;
  return short.replace(/\p{C}/gu, '\ufffd');
}
