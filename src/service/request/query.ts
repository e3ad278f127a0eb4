/**
 * The query of a request: decoded strictly, validated against the contract, and completed by its cursor.
 *
 * Decoding finds the faults that the validator does not see or does not report: broken encodings, unknown and repeated
 * parameters, empty values, numbers that are not plain digits. Only well-formed values are left for the validator, and one
 * response lists the faults of both.
 */
import { LRUCache } from 'lru-cache';
import { listOperation, parameters, resolve } from '../../contract.js';
import { decode } from '../../messages/encoding.js';
import { describeNumber, PLAIN_DIGITS, parameterFault } from '../../messages/faults.js';
import { cut, escapeHidden } from '../../messages/shown.js';
import { nearest, plain } from '../../messages/suggestion.js';
import { type Filter, filterOf } from '../../page/filter.js';
import { Faults, invalidCursor, invalidRequest } from '../problem/problem.js';
import { type Cursor, decodeCursor } from './cursor.js';
import { type Finding, type ValidParameters, validate } from './validator.js';

export interface ListQuery extends Selection {
  /** The phone number after which the page begins; '' for the first page. */
  after: string;
}

/** The request's filter and size, without the cursor position. */
interface Selection {
  size: number;
  filter: Filter;
  /** The filter and the size as a query string, with defaults, encoded as the contract says. */
  search: string;
}

/** Decoded values by the name of their parameter: a list for each repeatable one. */
type Values = Record<string, string | string[]>;

/** Reads the query of a request to `url`. Rejects with a 400 problem that lists every fault of the query. */
export async function readQuery(url: string): Promise<ListQuery> {
  const faults = new Faults();
  const { nextCursor, ...values } = parse(/\?(.*)/s.exec(url)?.[1] ?? '', faults);
  const selection = await select(values, faults);
  const cursor = typeof nextCursor === 'string' ? decodeCursor(nextCursor) : NO_CURSOR;
  if (faults.count > 0) {
    if (!cursor) faults.add('nextCursor', () => DAMAGED_CURSOR);
    throw invalidRequest(faults);
  }
  if (!cursor) throw invalidCursor(DAMAGED_CURSOR);
  if (!cursor.isFor(selection.filter)) throw invalidCursor(DIFFERENT_FILTERS);
  return { ...selection, after: cursor.after };
}

const NO_CURSOR: Cursor = { after: '', isFor: () => true };
const DAMAGED_CURSOR = 'is damaged; send it exactly as it was received, or start without it';
const DIFFERENT_FILTERS = 'belongs to other filters; send those it was made with, or start without it';

/** The most characters of all cached queries: some ten thousand usual ones. */
const MAX_CACHED_CHARACTERS = 1_000_000;

/**
 * The selections of recent valid queries, by their values without the cursor: the pages of a walk differ only in their cursors,
 * and most clients use few filters. Validating a query takes some 20 µs, about a twelfth of a request's CPU time.
 */
const selections = new LRUCache<string, Selection>({
  maxSize: MAX_CACHED_CHARACTERS,
  sizeCalculation: (_, key) => key.length,
});

/** Returns the selection of `values`. Adds their faults to `faults`; if there are any, the result is meaningless. */
async function select(values: Values, faults: Faults): Promise<Selection> {
  const key = JSON.stringify(values);
  const cached = selections.get(key);
  if (cached) return cached;
  const { findings, parameters } = await validate(values);
  addFindings(findings, values, faults);
  const selection = { size: parameters.size, filter: filterOf(parameters), search: searchOf(parameters) };
  if (findings.length === 0) selections.set(key, selection);
  return selection;
}

function searchOf(parameters: ValidParameters): string {
  const search = new URLSearchParams();
  for (const [name, valueOrList] of Object.entries(parameters)) {
    for (const value of [valueOrList].flat()) search.append(name, String(value));
  }
  return String(search);
}

function addFindings(findings: readonly Finding[], values: Values, faults: Faults): void {
  for (const { path, errorCode = '' } of findings) {
    // `path` is such as `/query/status/1`, `errorCode` such as `enum.openapi.validation`.
    const [, , name = '', index] = path.split('/');
    const [keyword = ''] = errorCode.split('.');
    const { [name]: value } = values;
    const schema = parameters.get(name)?.schema ?? {};
    faults.add(name, () => {
      if (index === undefined) return parameterFault(keyword, schema, value);
      return parameterFault(keyword, resolve(schema.items ?? {}), value?.[Number(index)]);
    });
  }
}

const { 'x-max-query-pairs': MAX_PAIRS } = listOperation;

/** Returns the well-formed values of known parameters in a query string, and adds what is wrong with the rest to `faults`. */
function parse(queryString: string, faults: Faults): Values {
  const values: Values = {};
  const pairs = pairsOf(queryString);
  if (pairs === undefined) {
    faults.add('', () => `has more than ${MAX_PAIRS} parameters`);
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
      const previous = pairs[index - 1];
      const isRestOfValue = previous?.includes('=') && !pair.includes('=');
      faults.add(name, () => describeUnknown(cut(name), isRestOfValue ? `${previous}%26${pair}` : undefined));
      continue;
    }
    const { schema } = parameter;
    const value = decode(rawValue);
    if (value === undefined) {
      faults.add(name, () => BROKEN_ENCODING);
    } else if (value === '') {
      faults.add(name, () => 'must not be empty; omit it instead');
    } else if (schema.type === 'integer' && !PLAIN_DIGITS.test(value)) {
      faults.add(name, () => describeNumber(schema, value));
    } else if (schema.type === 'array') {
      values[name] ??= [];
      (values[name] as string[]).push(value);
    } else if (name in values) {
      faults.add(name, () => 'is given more than once; give it once');
    } else {
      values[name] = value;
    }
  }
  return values;
}

/** Splits a query string at each `&`, without empty parts; undefined if there are more than MAX_PAIRS. */
function pairsOf(queryString: string): string[] | undefined {
  const pairs: string[] = [];
  for (const [pair] of queryString.matchAll(/[^&]+/g)) if (pairs.push(pair) > MAX_PAIRS) return undefined;
  return pairs;
}

const BROKEN_ENCODING = 'is not correctly percent-encoded UTF-8; encode each byte as % and two hexadecimal digits';

/** The name of each parameter by its synonyms: its names in other APIs. */
const synonyms = new Map(
  [...parameters].flatMap(([name, parameter]) =>
    (parameter['x-synonyms'] ?? []).map((synonym) => [plain(synonym), name]),
  ),
);

/**
 * Describes a parameter that does not exist, with the name that was probably meant. If it may be the rest of a value that has an
 * `&`, such as `AT&T`, `encodedPair` is the whole parameter, with `%26`.
 */
function describeUnknown(name: string, encodedPair: string | undefined): string {
  const bareName = name.endsWith(']') ? name.slice(0, name.indexOf('[')) : name;
  const meant = synonyms.get(plain(name)) ?? synonyms.get(plain(bareName)) ?? nearest(bareName, parameters.keys());
  const isList = parameters.get(meant ?? '')?.schema.type === 'array';
  // The name is repeated only if it has characters that a reader can't see.
  const shown = escapeHidden(name);
  const fault = `is not a parameter${shown === name ? '' : ` (${cut(shown)})`}`;
  if (isList && name.endsWith(']')) return `${fault}; repeat ${meant} without brackets`;
  if (!meant && encodedPair) return `${fault}; an & in a value is sent as %26: ${cut(escapeHidden(encodedPair))}`;
  return `${fault}${meant ? `; did you mean ${meant}?` : `; there are ${[...parameters.keys()].join(', ')}`}`;
}
