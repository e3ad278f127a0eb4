/** Validates a request's parameters: by the query string's reader, the contract's validator and the cursor. */
import express, { type Request, type RequestHandler, type Response } from 'express';
import * as OpenApiValidator from 'express-openapi-validator';
import { LRUCache } from 'lru-cache';
import {
  type ListBrandedPhoneNumbersRequest,
  listBrandedPhoneNumbers as operation,
} from '../../generated/types/apis/index.js';
import type { Fault } from '../../generated/types/models/index.js';
import { contract } from '../contract.js';
import { invalidCursor, invalidRequest } from '../problem/problem.js';
import { faultOfCursor } from './cursor.js';
import { type Finding, faultsOf } from './faultMessages.js';
import { parseQueryString } from './queryString.js';

/** The parameters as the contract describes them, with its defaults. */
export type ValidQuery = ListBrandedPhoneNumbersRequest & { size: number };

/**
 * Reads the parameters of a request to `url`.
 * @throws the problem of a 400 that names every fault of the request
 */
export async function readQuery(url: string): Promise<ValidQuery> {
  const { values, faults } = parseQueryString(url.split('?').slice(1).join('?'));
  const { nextCursor, ...others } = values;
  const judged = await judge(others);
  const cursorFault = typeof nextCursor === 'string' ? faultOfCursor(nextCursor) : undefined;
  const allFaults = [...faults, ...judged.faults];
  if (allFaults.length > 0) throw invalidRequest(cursorFault ? [...allFaults, cursorFault] : allFaults);
  if (cursorFault) throw invalidCursor(cursorFault);
  return typeof nextCursor === 'string' ? { ...judged.query, nextCursor } : judged.query;
}

/** Compiles the contract's schemas at the start: in the first request it would take longer than the rate limit may. */
export async function warmUpValidator(): Promise<void> {
  await judge({});
}

/** The values of a query without its cursor, with the contract's defaults, and the faults that the validator found. */
interface Judged {
  query: ValidQuery;
  faults: readonly Fault[];
}

/**
 * Queries that were lately found valid: the pages of a walk differ only in their cursor, and most clients use few
 * filters. A validation takes some 20 µs, about a twelfth of a request's CPU time.
 */
const good = new LRUCache<string, Judged>({ max: 1000 });
/** The longest query that is remembered, in characters. */
const MAX_REMEMBERED_LENGTH = 1000;

async function judge(values: Record<string, unknown>): Promise<Judged> {
  const key = JSON.stringify(values);
  const known = good.get(key);
  if (known) return known;
  const faults = faultsOf(await validate(values), values);
  const judged = { query: values as unknown as ValidQuery, faults };
  if (faults.length === 0 && key.length <= MAX_REMEMBERED_LENGTH) good.set(key, judged);
  return judged;
}

type Validator = (query: Record<string, unknown>) => Promise<Finding[]>;

let validator: Validator | undefined;

/** What the contract's validator finds wrong with the values of a query, into which it writes defaults and numbers. */
function validate(query: Record<string, unknown>): Promise<Finding[]> {
  validator ??= createValidator();
  return validator(query);
}

/**
 * Creates the contract's validator. It sees requests that have only a query: for others it would compile and keep a
 * schema for each Content-Type that it meets.
 */
function createValidator(): Validator {
  const handlers = OpenApiValidator.middleware({
    apiSpec: documentForValidator(),
    validateRequests: { allErrors: true },
    validateResponses: false,
    validateSecurity: false,
    fileUploader: false,
  }) as RequestHandler[];
  // The validator asks it how routes are matched.
  const app = express().enable('strict routing').enable('case sensitive routing');
  const { method, path } = operation;
  return (query) => {
    const request = { app, method, path, originalUrl: path, baseUrl: '', headers: {}, params: {}, query };
    return new Promise((resolve, reject) => {
      const call = (index: number) => {
        const handler = handlers[index];
        if (!handler) return resolve([]);
        handler(request as unknown as Request, {} as Response, (error?: unknown) => {
          if (error === undefined) return call(index + 1);
          const { status, errors } = error as { status?: number; errors?: Finding[] };
          if (status === 400 && Array.isArray(errors)) resolve(errors);
          else reject(error);
        });
      };
      call(0);
    });
  };
}

/**
 * The contract with `allowReserved` on each query parameter. The validator wants reserved characters percent-encoded
 * and so would refuse the specification's own `status=submitted+for+review`; if it were published, `allowReserved` would
 * make clients send `+` and `&` unencoded.
 */
function documentForValidator() {
  const document = structuredClone(contract);
  for (const parameter of Object.values(document.components.parameters)) {
    if (parameter.in === 'query') Object.assign(parameter, { allowReserved: true });
  }
  return document as unknown as Parameters<typeof OpenApiValidator.middleware>[0]['apiSpec'];
}
