/** Messages for what the validator found, so that a person knows what to send instead. */
import type { Fault } from '../../generated/types/models/index.js';
import { parameters, resolve, type Schema } from '../contract.js';
import { nearest } from '../suggestion.js';

/** One finding of express-openapi-validator. */
export interface Finding {
  /** Such as `/query/status/1`. */
  path: string;
  /** The keyword of JSON Schema that failed, then `.openapi.validation`. */
  errorCode?: string;
  message: string;
}

/** The validator's findings about `query` as faults: one for each value, however many keywords it fails. */
export function faultsOf(findings: readonly Finding[], query: Record<string, unknown>): Fault[] {
  const faults = new Map<string, Fault>();
  for (const { path, errorCode, message } of findings) {
    const [, , name = '', index] = path.split('/');
    const key = `${name}/${index ?? ''}`;
    if (faults.has(key)) continue;
    const sent = query[name];
    const value = index === undefined ? sent : (sent as unknown[])[Number(index)];
    const schema = parameters.get(name)?.schema;
    const detail = schema
      ? describe(value, index === undefined ? schema : resolve(schema.items ?? {}), errorCode)
      : message;
    faults.set(key, { parameter: name, detail });
  }
  return [...faults.values()];
}

function describe(value: unknown, schema: Schema, errorCode = ''): string {
  const keyword = errorCode.split('.')[0];
  if (Array.isArray(value)) return `has ${value.length} values; at most ${schema.maxItems} are allowed`;
  if (schema.type === 'integer') return `must be ${bounds(schema)}`;
  const text = String(value);
  const choices = schema.enum ?? [];
  if (choices.length > 0) {
    const parts = text.split(',').map((part) => nearest(part.trim(), choices));
    if (parts.length > 1 && parts.every(Boolean)) {
      return `${quoted(text)} is not a ${schema.title}; commas do not separate values: repeat the parameter for each`;
    }
    const meant = nearest(text, choices);
    return `${quoted(text)} is not a ${schema.title}; ${meant ? `did you mean ${meant}?` : `use one of ${choices.join(', ')}`}`;
  }
  if (keyword === 'maxLength' && schema.maxLength !== undefined && !schema.format && schema.maxLength >= 100) {
    return `has ${[...text].length} characters; at most ${schema.maxLength} are allowed`;
  }
  const [example] = schema.examples ?? [];
  const form = `${quoted(text)} is not a ${schema.title}${example ? `, for example ${example}` : ''}`;
  // A raw + in a query is a space: the most common mistake with phone numbers.
  return text.startsWith(' ') && String(example).startsWith('+') ? `${form}; send its + as %2B` : form;
}

/** "a page size from 1 to 100" */
export function bounds({ title, minimum, maximum }: Schema): string {
  return `a ${title} from ${minimum} to ${maximum}`;
}

/** A value as it was sent, short and printable. */
function quoted(text: string): string {
  return JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text);
}
