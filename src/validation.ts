/** The request validator, made from the contract. */
import type { ErrorRequestHandler, Request, RequestHandler, Response } from 'express';
import * as OpenApiValidator from 'express-openapi-validator';
import type { Fault } from '../generated/types/models/index.js';
import { contract } from './contract.js';
import { faultOfCursor, invalidCursor } from './cursor.js';
import { type Finding, faultsOf } from './fault.js';
import { invalidRequest, type ProblemError } from './problem.js';

/**
 * Handlers that check a request against the contract and put coerced values and defaults into `request.query`. The
 * query string has been read before (`readQueryString`); its faults and the validator's become one problem.
 */
export function validateRequests(): (RequestHandler | ErrorRequestHandler)[] {
  const validator = OpenApiValidator.middleware({
    apiSpec: documentForValidator(),
    validateRequests: { allErrors: true },
    validateResponses: false,
    validateSecurity: false,
  });
  const collect: ErrorRequestHandler = (error, request, response, next) => {
    const isFinding = error.status === 400 && Array.isArray(error.errors);
    next(isFinding ? verdict(request, response, faultsOf(error.errors as Finding[], request.query)) : error);
  };
  const judge: RequestHandler = (request, response, next) => next(verdict(request, response, []));
  return [dropContentType, ...(validator as RequestHandler[]), judge, collect];
}

/** The problem that all faults of a request make together; undefined where there are none. */
function verdict({ query }: Request, response: Response, found: readonly Fault[]): ProblemError | undefined {
  const faults = [
    ...(response.locals.faults as Fault[]),
    ...found.filter(({ parameter }) => parameter !== 'nextCursor'),
  ];
  const cursorFault = typeof query.nextCursor === 'string' ? faultOfCursor(query.nextCursor) : undefined;
  if (faults.length > 0) return invalidRequest(cursorFault ? [...faults, cursorFault] : faults);
  return cursorFault && invalidCursor(cursorFault);
}

/** The validator compiles and keeps a schema for each Content-Type it meets; none of our requests has a body. */
const dropContentType: RequestHandler = (request, _response, next) => {
  delete request.headers['content-type'];
  next();
};

/**
 * The contract with `allowReserved` on each query parameter. The validator wants reserved characters percent-encoded
 * and so would refuse the specification's own `status=submitted+for+review`; published, the mark would make clients
 * send `+` and `&` unencoded.
 */
function documentForValidator() {
  const document = structuredClone(contract);
  for (const parameter of Object.values(document.components.parameters)) {
    if (parameter.in === 'query') Object.assign(parameter, { allowReserved: true });
  }
  return document as unknown as Parameters<typeof OpenApiValidator.middleware>[0]['apiSpec'];
}
