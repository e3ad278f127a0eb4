/**
 * The query string, read strictly: what the request validator never sees or lets pass is found here (broken encodings,
 * unknown and repeated parameters, empty values, numbers that are not plain digits). What is left is clean enough for
 * the validator to judge by the contract, so that one answer can name the faults of both.
 */
import type { RequestHandler } from 'express';
import type { Fault } from '../generated/types/models/index.js';
import { type Parameter, parameters } from './contract.js';
import { bounds } from './fault.js';
import { nearest } from './suggestion.js';

interface QueryString {
  /** The well-formed values of known parameters: a list for each repeatable one. */
  values: Record<string, string | string[]>;
  faults: Fault[];
}

/** Puts the clean values into `request.query` and the faults into `response.locals.faults`. */
export const readQueryString: RequestHandler = (request, response, next) => {
  const { values, faults } = parseQueryString(request.url.split('?').slice(1).join('?'));
  response.locals.faults = faults;
  // Express computes `query` at each access; the validator writes its coerced values and defaults there.
  Object.defineProperty(request, 'query', { value: values, writable: true, configurable: true, enumerable: true });
  next();
};

/** Reads a query string (what follows the `?`) as the contract's parameters. Never throws. */
function parseQueryString(text: string): QueryString {
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

function unknown(name: string): string {
  const meant = nearest(name.replace(/\[.*\]$/, ''), parameters.keys());
  if (meant && name.endsWith(']')) return `is not a parameter; repeat ${meant} without brackets`;
  return `is not a parameter${meant ? `; did you mean ${meant}?` : `; there are ${[...parameters.keys()].join(', ')}`}`;
}

function faultOf(value: string, { schema }: Parameter): string | undefined {
  if (value === '') return 'is empty; give it a value or leave it out';
  // The validator takes 0x10, 1e1 and 5.0 for integers, and so many digits that they come to infinity.
  if (schema.type === 'integer' && !/^[0-9]{1,15}$/.test(value)) return `must be ${bounds(schema)}, in plain digits`;
  return undefined;
}
