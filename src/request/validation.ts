/** Validates a request's parameters: by the query string's reader, the contract's validator and the cursor. */
import express, { type Request, type RequestHandler, type Response } from 'express';
import * as OpenApiValidator from 'express-openapi-validator';
import { LRUCache } from 'lru-cache';
import {
  type ListBrandedPhoneNumbersRequest,
  listBrandedPhoneNumbers as operation,
} from '../../generated/types/apis/index.js';
import { contract, parameters, resolve, withExactPatterns } from '../contract.js';
import { parameterFault } from '../messages/findings.js';
import { Faults, invalidCursor, invalidRequest } from '../problem/problem.js';
import { type Cursor, decodeCursor } from './cursor.js';
import { type Filter, filterOf } from './filter.js';
import { parseQueryString } from './queryString.js';

/** The parameters as the contract describes them, with its defaults, but without the cursor. */
type ValidParameters = Omit<ListBrandedPhoneNumbersRequest, 'nextCursor'> & { size: number };

/** What a request asks for, but for the page's beginning. */
interface Selection {
  size: number;
  filter: Filter;
  /** The parameters again, encoded as the contract says. */
  search: string;
}

export interface ListQuery extends Selection {
  /** The phone number after which the page begins; '' for the first page. */
  after: string;
}

/**
 * Reads the query of a request to `url`.
 * @throws the problem of a 400 that names every fault of the request
 */
export async function readQuery(url: string): Promise<ListQuery> {
  const faults = new Faults();
  const { nextCursor, ...others } = parseQueryString(/\?(.*)/s.exec(url)?.[1] ?? '', faults);
  const selection = await validated(others, faults);
  const cursor = typeof nextCursor === 'string' ? decodeCursor(nextCursor) : NO_CURSOR;
  if (faults.count > 0) {
    if (!cursor) faults.add('nextCursor', () => DAMAGED);
    throw invalidRequest(faults);
  }
  if (!cursor) throw invalidCursor(DAMAGED);
  if (!cursor.isFor(selection.filter)) throw invalidCursor(OF_OTHER_FILTERS);
  return { ...selection, after: cursor.after };
}

const NO_CURSOR: Cursor = { after: '', isFor: () => true };
const DAMAGED = 'is damaged; send it exactly as it was received, or start without it';
const OF_OTHER_FILTERS = 'belongs to other filters; send those it was made with, or start without it';

/** Compiles the contract's schemas at the start: in the first request, that would take longer than the rate limit may. */
export async function warmUpValidator(): Promise<void> {
  await validated({}, new Faults());
}

/**
 * Queries that were recently found valid: the pages of a walk differ only in their cursor, and most clients use few
 * filters. Validating takes some 20 µs, about a twelfth of a request's CPU time.
 */
const knownValid = new LRUCache<string, Selection>({ max: 1000 });
/** The longest query that is remembered, in characters. */
const MAX_REMEMBERED_LENGTH = 1000;

/** What the values of a query without its cursor ask for; adds what the validator finds to `faults`. */
async function validated(values: Record<string, unknown>, faults: Faults): Promise<Selection> {
  const key = JSON.stringify(values);
  const known = knownValid.get(key);
  if (known) return known;
  const findings = await validate(values);
  addFindings(findings, values, faults);
  const parameters = values as unknown as ValidParameters;
  const selection = { size: parameters.size, filter: filterOf(parameters), search: searchOf(parameters) };
  if (findings.length === 0 && key.length <= MAX_REMEMBERED_LENGTH) knownValid.set(key, selection);
  return selection;
}

function searchOf(parameters: ValidParameters): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const each of Array.isArray(value) ? value : [value]) search.append(name, String(each));
  }
  return String(search);
}

/** One finding of express-openapi-validator: such as `/query/status/1`, and `enum.openapi.validation`. */
interface Finding {
  path: string;
  errorCode?: string;
}

/** Adds the validator's findings about `query` to `faults`: one for each value, even if it fails several keywords. */
function addFindings(findings: readonly Finding[], query: Record<string, unknown>, faults: Faults): void {
  const found = new Set<string>();
  for (const { path, errorCode = '' } of findings) {
    if (found.size === found.add(path).size) continue;
    const [, , name = '', index] = path.split('/');
    const [keyword = ''] = errorCode.split('.');
    const { [name]: sent } = query;
    const schema = parameters.get(name)?.schema ?? {};
    faults.add(name, () => {
      if (index === undefined) return parameterFault(keyword, schema, sent);
      return parameterFault(keyword, resolve(schema.items ?? {}), (sent as unknown[])[Number(index)]);
    });
  }
}

/**
 * The contract's validator is given requests that have nothing but a query: it would compile and keep a schema for each
 * Content-Type that it meets.
 */
const validator = express.Router().use(
  OpenApiValidator.middleware({
    apiSpec: documentForValidator(),
    // CI lints the document; to check it again would take a seventh of each start.
    validateApiSpec: false,
    validateRequests: { allErrors: true },
    validateResponses: false,
    validateSecurity: false,
    fileUploader: false,
  }) as RequestHandler[],
);
/** The validator asks the application how routes are matched. */
const app = express().enable('strict routing').enable('case sensitive routing');

/** What the validator finds wrong with the values of a query, into which it writes defaults and numbers. */
function validate(query: Record<string, unknown>): Promise<Finding[]> {
  const { method, path } = operation;
  const request = { app, method, path, url: path, originalUrl: path, baseUrl: '', headers: {}, params: {}, query };
  return new Promise((resolve, reject) => {
    validator(request as unknown as Request, {} as Response, (error?: unknown) => {
      const { errors } = (error ?? { errors: [] }) as { errors?: Finding[] };
      if (errors) resolve(errors);
      else reject(error);
    });
  });
}

/**
 * The contract with its exact patterns, and with `allowReserved` on each parameter. The validator wants reserved characters
 * percent-encoded and so would refuse the specification's own `status=submitted+for+review`; if it were published,
 * `allowReserved` would make clients send `+` and `&` unencoded.
 */
function documentForValidator() {
  const document = withExactPatterns(contract);
  for (const parameter of Object.values(document.components.parameters)) {
    Object.assign(parameter, { allowReserved: true });
  }
  return document as unknown as Parameters<typeof OpenApiValidator.middleware>[0]['apiSpec'];
}
