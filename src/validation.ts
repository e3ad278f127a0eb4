/** The request validator, made from the contract. */
import { type ErrorRequestHandler, type Request, type RequestHandler, type Response, Router } from 'express';
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
  const handlers = OpenApiValidator.middleware({
    apiSpec: documentForValidator(),
    validateRequests: { allErrors: true },
    validateResponses: false,
    validateSecurity: false,
    fileUploader: false,
  }) as RequestHandler[];
  const validate = rememberingOperation(handlers);
  const collect: ErrorRequestHandler = (error, request, response, next) => {
    const isFinding = error.status === 400 && Array.isArray(error.errors);
    next(isFinding ? verdict(request, response, faultsOf(error.errors as Finding[], request.query)) : error);
  };
  const judge: RequestHandler = (request, response, next) => next(verdict(request, response, []));
  return [dropContentType, validate, judge, collect];
}

/**
 * The validator's handlers as one. All but the last only find the request's operation in the document, which compiles
 * the path's pattern each time; since there is one operation, what they have found for one request holds for all.
 */
function rememberingOperation(handlers: RequestHandler[]): RequestHandler {
  const find = Router({ caseSensitive: true, strict: true }).use(handlers.slice(0, -1));
  const validate = handlers.at(-1) as RequestHandler;
  let operation: unknown;
  return (request, response, next) => {
    const described = request as typeof request & { openapi?: unknown };
    if (operation) {
      described.openapi = operation;
      return validate(request, response, next);
    }
    find(request, response, (error?: unknown) => {
      if (error) return next(error);
      operation = described.openapi;
      validate(request, response, next);
    });
  };
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
