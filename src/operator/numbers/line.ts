/** Reads one number of an import, and validates it with the contract's schema. */
import { isUtf8 } from 'node:buffer';
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import type { BrandedPhoneNumber, CarrierStatus } from '../../../generated/types/models/index.js';
import { itemFaults } from '../../messages/faults.js';
import { cut, escapeHidden } from '../../messages/shown.js';
import { LineError, MAX_LINE_BYTES, TOO_LONG } from './lines.js';
import { numberSchema } from './numberSchema.js';
import { isTime } from './time.js';

type Optional<T, K extends keyof T> = Omit<T, K> & Partial<Pick<T, K>>;

export type GivenNumber = Optional<
  Omit<BrandedPhoneNumber, 'status' | 'carrierStatuses'>,
  'id' | 'createdAt' | 'updatedAt'
> & { carrierStatuses: Optional<CarrierStatus, 'createdAt'>[] };

/** Returns the number of a line, given without its line feed. @throws {LineError} with all faults */
export function readLine(bytes: Buffer): GivenNumber {
  if (bytes.length > MAX_LINE_BYTES) throw new LineError(TOO_LONG);
  if (!isUtf8(bytes)) throw new LineError('is not valid UTF-8');
  const text = bytes.toString();
  return readItem(parse(text), (item) => [...repeatedMembers(item, text), ...loneSurrogates(item, text)]);
}

/**
 * Returns the number of an item.
 * @param moreFaults finds faults that neither the schema nor its entries show
 * @throws {LineError} with all faults, each of which begins with the path of a member, if it concerns one
 */
export function readItem(given: unknown, moreFaults: (item: GivenNumber) => string[] = () => []): GivenNumber {
  const item = withoutEmptyTexts(given);
  if (!isGivenNumber(item)) throw new LineError(...itemFaults(isGivenNumber.errors ?? []));
  const faults = [...repeatedEntries(item), ...moreFaults(item)];
  if (faults.length > 0) throw new LineError(...faults);
  return item;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new LineError(`is not valid JSON: ${cut(escapeHidden((error as Error).message))}`);
  }
}

/** Finds members given twice in one object, of which JSON.parse keeps only the last. */
function repeatedMembers(item: GivenNumber, text: string): string[] {
  let members = Object.keys(item).length + Object.keys(item.businessProfile).length;
  for (const entry of item.carrierStatuses) members += Object.keys(entry).length;
  // Each member's name is followed by a colon. If no more quotes than members are, none is repeated.
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
  return [...repeated].map((name) => `${cut(escapeHidden(name))} is given twice in one object`);
}

function repeatedEntries({ carrierStatuses }: GivenNumber): string[] {
  const pairs = new Set<string>();
  for (const { carrier, feature } of carrierStatuses) pairs.add(`${feature} ${carrier}`);
  if (pairs.size === carrierStatuses.length) return [];
  return carrierStatuses.flatMap(({ carrier, feature }, i) =>
    pairs.delete(`${feature} ${carrier}`)
      ? []
      : [`carrierStatuses[${i}] repeats the entry for ${cut(escapeHidden(carrier))} and ${feature}`],
  );
}

/** Finds halves of surrogate pairs, which PostgreSQL rejects. Only escapes can produce them. */
function loneSurrogates(item: GivenNumber, text: string): string[] {
  if (!text.includes('\\u')) return [];
  // Without the status, which is ignored, so it may be of any type and depth.
  const { status: _ignored, ...members } = item as GivenNumber & { status?: unknown };
  return [members, item.businessProfile, ...item.carrierStatuses]
    .flatMap((object) => Object.entries(object))
    .filter(([, value]) => typeof value === 'string' && /\p{Surrogate}/u.test(value))
    .map(([name]) => `${name} has half of a surrogate pair (\\ud800 to \\udfff)`);
}

/** Replaces empty texts by null in members that may be null. */
function withoutEmptyTexts(item: unknown): unknown {
  if (typeof item !== 'object' || item === null) return item;
  for (const name of NULLABLE)
    if ((item as Record<string, unknown>)[name] === '') Object.assign(item, { [name]: null });
  return item;
}

const NULLABLE = Object.entries(numberSchema.properties ?? {})
  .filter(([, { type }]) => type?.includes('null'))
  .map(([name]) => name);

const ajv = new Ajv2020({ allErrors: true, verbose: true, allowUnionTypes: true });
addFormats.default(ajv, ['uuid']);
ajv.addFormat('date-time', isTime);
const isGivenNumber = ajv.compile<GivenNumber>(numberSchema);
