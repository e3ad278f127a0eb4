/** Sends problems: responses of the type `application/problem+json` (RFC 9457). */
import { STATUS_CODES } from 'node:http';
import type { ErrorRequestHandler, Request } from 'express';
import { listBrandedPhoneNumbers as operation } from '../../../generated/types/apis/index.js';
import type { Problem } from '../../../generated/types/models/index.js';
import { contract } from '../../contract.js';
import { DatabaseUnavailable } from '../../database/errors.js';
import { cut, escapeHidden } from '../../messages/shown.js';
import { nearest } from '../../messages/suggestion.js';
import { ProblemError, problem, unavailable } from '../problem/problem.js';
import { encodeBody } from './compression.js';

/**
 * Returns the handler that sends the problem of an error. Any other error becomes a 500; it is passed to `report`, and
 * the client does not see it. `publicPath` is prepended to the problem's type, the address of its page.
 */
export function problemHandler(
  report: (error: unknown, request: Request) => void,
  publicPath: string,
): ErrorRequestHandler {
  // With three parameters, Express would take it for a handler of requests.
  return async (error, request, response, _next) => {
    const known = problemOf(error);
    if (!known) report(error, request);
    const { problem: body, headers } = known ?? problem('internal-error', INTERNAL_ERROR);
    response.status(body.status).set(headers).set('Content-Type', 'application/problem+json; charset=utf-8');
    response.send(await encodeBody(request, response, Buffer.from(jsonOf(publicPath, body))));
  };
}

const INTERNAL_ERROR = 'Something went wrong on our side. Retry; if it keeps failing, tell us the X-Request-Id.';

function problemOf(error: unknown): ProblemError | undefined {
  if (error instanceof ProblemError) return error;
  if (error instanceof DatabaseUnavailable) return unavailable(error.message);
  // Express throws a 400 for a path that it can't decode.
  if ((error as { status?: number }).status === 400) {
    const detail = 'is not correctly percent-encoded';
    return problem('invalid-request', `The address ${detail}.`, { errors: [{ parameter: '', detail }] });
  }
  return undefined;
}

/** A phone number appended to the operation's path, as in other APIs. */
const NUMBER_IN_PATH = new RegExp(`^${operation.path}/(?:[+]|%2B)?([1-9]\\d{1,14})$`, 'i');

/** Returns the problem of an address at which there is nothing. */
export function noSuchPath(request: Request, publicPath: string): ProblemError {
  const [, digits] = NUMBER_IN_PATH.exec(request.path) ?? [];
  if (digits) {
    const address = `${publicPath}${operation.path}?phoneNumber=%2B${digits}`;
    return problem('not-found', `To request one number, use the parameter phoneNumber: ${address}.`);
  }
  const known = nearest(request.path, Object.keys(contract.paths));
  const advice = known ? `; did you mean ${publicPath}${known}?` : `. The addresses are listed at ${publicPath}/docs.`;
  return problem('not-found', `There is nothing at ${publicPath}${cut(escapeHidden(request.path))}${advice}`);
}

function jsonOf(publicPath: string, body: Problem): string {
  return JSON.stringify({ ...body, type: `${publicPath}${body.type}` });
}

/** Returns a whole response with a problem, for the socket of a request that is too broken to have a response object. */
export function rawProblem(publicPath: string, status: number, detail: string, requestId: string): string {
  const body = jsonOf(publicPath, problem('invalid-request', detail, { status }).problem);
  return [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    'Content-Type: application/problem+json; charset=utf-8',
    'X-Content-Type-Options: nosniff',
    `X-Request-Id: ${requestId}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Connection: close',
    '',
    body,
  ].join('\r\n');
}
