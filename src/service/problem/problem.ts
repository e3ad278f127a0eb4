/** Problems (RFC 9457) of the types that the contract lists, as errors that are thrown. */
import type { Fault, Problem } from '../../../generated/types/models/index.js';
import { contract, type ProblemType } from '../../contract.js';
import { cut, escapeHidden } from '../../messages/shown.js';

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

/** An error that is sent to the client as a problem, with `headers`. */
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
 * Returns the error for the problem `name`; `detail` says what was wrong and what to do. `status` overrides that of the
 * problem type, for malformed requests that have a more specific one.
 */
export function problem(
  name: ProblemName,
  detail: string,
  { errors, headers = {}, status }: { errors?: Fault[]; headers?: Record<string, string>; status?: number } = {},
): ProblemError {
  const { title, status: statusOfType } = contract['x-problems'][name] as ProblemType;
  const body = { type: `/problems/${name}`, title, status: status ?? statusOfType, detail, message: title };
  return new ProblemError(errors ? { ...body, errors } : body, headers);
}

const MAX_DESCRIBED = contract.components.schemas.Problem?.properties?.errors?.maxItems as number;

/** The faults of a request: all are counted, and the first ones are described. */
export class Faults {
  readonly described: Fault[] = [];
  count = 0;

  /** Adds a fault. `describe` returns what is wrong; it is called only for faults that are listed, since it takes time. */
  add(parameter: string, describe: () => string): void {
    if (this.count++ < MAX_DESCRIBED) this.described.push({ parameter: cut(parameter), detail: describe() });
  }
}

/** Returns the problem for the faults of a request: all of them, or the first ones if there are too many. */
export function invalidRequest({ count, described }: Faults): ProblemError {
  const names = cut(escapeHidden([...new Set(described.map((fault) => fault.parameter))].join(', ')));
  const list = count > described.length ? `errors has the first ${described.length}` : 'See errors';
  const [first] = described;
  const detail =
    count === 1 && first
      ? asSentence(`${first.parameter ? cut(escapeHidden(first.parameter)) : 'The query'} ${first.detail}`)
      : `The request has ${count} faults: ${names}. ${list}.`;
  return problem('invalid-request', detail, { errors: described });
}

/** Returns the problem for an invalid cursor; `detail` says what is wrong with it. */
export function invalidCursor(detail: string): ProblemError {
  const parameter = 'nextCursor';
  return problem('invalid-cursor', asSentence(`${parameter} ${detail}`), { errors: [{ parameter, detail }] });
}

/** Adds a full stop, unless the text ends with a question, as in "did you mean carrier?" */
function asSentence(text: string): string {
  return text.endsWith('?') ? text : `${text}.`;
}

/** Returns the problem for a request without a valid key; `detail` says what is wrong with it. */
export function unauthorized(detail: string): ProblemError {
  return problem('unauthorized', detail, { headers: { 'WWW-Authenticate': 'Bearer realm="branded-phone-numbers"' } });
}

/** Returns a 503 problem: the database or the service can't respond in time; the client may retry in a second. */
export function unavailable(detail: string): ProblemError {
  return problem('unavailable', `${detail} Try again in 1 second.`, { headers: { 'Retry-After': '1' } });
}
