/** Problems as answers: `application/problem+json` (RFC 9457), of the types that the contract lists. */
import { STATUS_CODES } from 'node:http';
import type { ErrorRequestHandler, Request, RequestHandler, Response } from 'express';
import { listBrandedPhoneNumbers as operation } from '../../generated/types/apis/index.js';
import type { Fault, Problem } from '../../generated/types/models/index.js';
import { contract } from '../contract.js';
import { DatabaseUnavailable } from '../database/errors.js';
import { encodeBody } from '../http/compression.js';
import { abridged, shorten } from '../messages/shorten.js';
import { nearest } from '../messages/suggestion.js';

/** The last part of a problem type's URI; each is listed in the contract's `x-problems`. */
export type ProblemName =
  | 'invalid-request'
  | 'invalid-cursor'
  | 'unauthorized'
  | 'not-found'
  | 'method-not-allowed'
  | 'misdirected-request'
  | 'rate-limit-exceeded'
  | 'internal-error'
  | 'unavailable';

/** An error that is an answer. */
export class ProblemError extends Error {
  readonly problem: Problem;
  readonly headers: Readonly<Record<string, string>>;

  constructor(problem: Problem, headers: Record<string, string>) {
    super(problem.detail);
    this.problem = problem;
    this.headers = headers;
  }
}

/**
 * Makes the error that answers with the problem `name`; `detail` says what was wrong and what to do. `status` is for
 * malformed requests whose fault has a status of its own.
 */
export function problem(
  name: ProblemName,
  detail: string,
  { errors, headers = {}, status }: { errors?: Fault[]; headers?: Record<string, string>; status?: number } = {},
): ProblemError {
  const type = contract['x-problems'][name];
  if (!type) throw new Error(`the contract lists no problem ${name}`);
  const { title } = type;
  const body = { type: `/problems/${name}`, title, status: status ?? type.status, detail, message: title };
  return new ProblemError(errors ? { ...body, errors } : body, headers);
}

const MAX_DESCRIBED = contract.components.schemas.Problem?.properties?.errors?.maxItems as number;

/** The faults of a request: all are counted, the first ones described. */
export class Faults {
  /** The first ones, as the contract's problem lists them. */
  readonly described: Fault[] = [];
  count = 0;

  /** Adds a fault. `describe` says what is wrong; that takes time, so it is not called for faults beyond the list. */
  add(parameter: string, describe: () => string): void {
    if (this.count++ < MAX_DESCRIBED) this.described.push({ parameter: shorten(parameter), detail: describe() });
  }
}

/** The problem for faults of parameters: all of them at once, or the first ones of very many. */
export function invalidRequest({ count, described }: Faults): ProblemError {
  const names = abridged([...new Set(described.map((fault) => fault.parameter))].join(', '));
  const where = count > described.length ? `errors has the first ${described.length}` : 'See errors';
  const [first] = described;
  const detail =
    count === 1 && first
      ? sentence(`${first.parameter ? abridged(first.parameter) : 'The query'} ${first.detail}`)
      : `The request has ${count} faults: ${names}. ${where}.`;
  return problem('invalid-request', detail, { errors: described });
}

/** The problem of a request whose only fault is its cursor; `detail` says what is wrong with it. */
export function invalidCursor(detail: string): ProblemError {
  const parameter = 'nextCursor';
  return problem('invalid-cursor', sentence(`${parameter} ${detail}`), { errors: [{ parameter, detail }] });
}

/** A fault may end in a question: "did you mean carrier?" */
function sentence(text: string): string {
  return text.endsWith('?') ? text : `${text}.`;
}

/** The problem of a request without a valid key; `refusal` says what was wrong with it. */
export function unauthorized(refusal: string): ProblemError {
  return problem('unauthorized', refusal, { headers: { 'WWW-Authenticate': 'Bearer realm="branded-phone-numbers"' } });
}

/** The problem of a 503: the database or the service can't answer in time; worth retrying in a second. */
export function unavailable(detail: string): ProblemError {
  return problem('unavailable', `${detail} Try again in 1 second.`, { headers: { 'Retry-After': '1' } });
}

/** Passes on requests that no route matched to `answerProblem`. */
export const notFound: RequestHandler = (_request, _response, next) => next({ status: 404 });

/** A phone number behind the operation's path, where other APIs have it. */
const NUMBER_IN_PATH = new RegExp(`^${operation.path}/(?:[+]|%2B)?([1-9]\\d{1,14})$`, 'i');

function noSuchPath(request: Request, publicPath: string): ProblemError {
  const [, digits] = NUMBER_IN_PATH.exec(request.path) ?? [];
  if (digits) {
    return problem(
      'not-found',
      `A number is asked for by a parameter: ${publicPath}${operation.path}?phoneNumber=%2B${digits}.`,
    );
  }
  const known = nearest(request.path, Object.keys(contract.paths));
  return problem(
    'not-found',
    `There is nothing at ${publicPath}${abridged(request.path)}${known ? `; did you mean ${publicPath}${known}?` : `. The addresses are listed at ${publicPath}/docs.`}`,
  );
}

/**
 * Turns what was thrown into its answer. An error that is not a problem is our mistake: only `report` sees it. `publicPath` is
 * put in front of the problem's type, so that it leads to the problem's page.
 */
export function answerProblem(
  report: (error: unknown, request: Request) => void,
  publicPath: string,
): ErrorRequestHandler {
  return (error, request, response, next) => {
    if (response.headersSent) return next(error);
    const known = problemOf(error, request, publicPath);
    if (!known) report(error, request);
    return send(request, response, known ?? problem('internal-error', OUR_MISTAKE), publicPath);
  };
}

function problemOf(error: unknown, request: Request, publicPath: string): ProblemError | undefined {
  if (error instanceof ProblemError) return error;
  if (error instanceof DatabaseUnavailable) return unavailable(error.message);
  const { status } = error as { status?: number };
  if (status === 404) return noSuchPath(request, publicPath);
  // Express throws these for what it can't decode, such as a path with broken percent-encoding.
  if (status === 400) {
    const detail = 'is not correctly percent-encoded';
    return problem('invalid-request', `The address ${detail}.`, { errors: [{ parameter: '', detail }] });
  }
  return undefined;
}

const OUR_MISTAKE = 'Something went wrong on our side. Try again; if it stays, tell us the X-Request-Id.';

async function send(
  request: Request,
  response: Response,
  { problem: body, headers }: ProblemError,
  publicPath: string,
): Promise<void> {
  response.status(body.status).set(headers).set('Content-Type', 'application/problem+json; charset=utf-8');
  response.send(await encodeBody(request, response, Buffer.from(JSON.stringify(withTypeBelow(publicPath, body)))));
}

function withTypeBelow(publicPath: string, body: Problem): Problem {
  return { ...body, type: `${publicPath}${body.type}` };
}

/** A problem for the raw socket, for a request that is too broken to have a response object. */
export function rawProblem(publicPath: string, name: ProblemName, status: number, detail: string): string {
  const body = JSON.stringify(withTypeBelow(publicPath, problem(name, detail, { status }).problem));
  return [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    'Content-Type: application/problem+json; charset=utf-8',
    'X-Content-Type-Options: nosniff',
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Connection: close',
    '',
    body,
  ].join('\r\n');
}
