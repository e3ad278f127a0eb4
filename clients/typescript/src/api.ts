/** The generated operations, with a time limit for each request, and errors that contain the service's problem. */
import { PAGE_SCHEMA, VERSION } from './generated/contract.js';
import * as generated from './generated/index.js';
import { type Pacing, retrying } from './retries.js';
import { conforms } from './schema.js';
import { TimeLimit } from './timeLimit.js';

export interface ConfigurationParameters extends Omit<generated.ConfigurationParameters, 'accessToken'> {
  /** The API key. Undefined, as an environment variable that is not set, sends none. */
  accessToken?: generated.ConfigurationParameters['accessToken'] | undefined;
  /** How long a request may take until its response is complete, in milliseconds; 30,000 by default. */
  timeout?: number;
  /**
   * A call retries after a 429, 502, 503, 504 or a broken connection until this time, in milliseconds, would be exceeded;
   * 60,000 by default. 0 turns retries off.
   */
  retryFor?: number;
  /** Names the program for the service's log, such as `acme-sync/2.0`. Browsers send their own user agent instead. */
  userAgent?: string;
}

const OWN_USER_AGENT = `branded-phone-numbers-client/${VERSION} (TypeScript)`;

export class Configuration extends generated.Configuration {
  readonly timeout: number;
  readonly retryFor: number;
  readonly userAgent: string;

  constructor(parameters: ConfigurationParameters = {}) {
    super(parameters);
    this.timeout = parameters.timeout ?? 30_000;
    this.retryFor = parameters.retryFor ?? 60_000;
    this.userAgent = [parameters.userAgent, OWN_USER_AGENT].filter(Boolean).join(' ');
  }

  /** In browsers without the user agent: it would make them send a preflight request before each request. */
  override get headers(): generated.HTTPHeaders {
    return { ...(!('document' in globalThis) && { 'User-Agent': this.userAgent }), ...super.headers };
  }

  override get basePath(): string {
    return super.basePath.replace(/\/+$/, '');
  }
}

/** A response other than a page. Its message is `<status> <title>: <detail>`; without a problem, it says what was found. */
export class ResponseError extends generated.ResponseError {
  /** The problem that the service sent; undefined if the response is not a problem, such as one from a proxy. */
  readonly problem?: generated.Problem;
  /** The `X-Request-Id` of the response, which finds the request in the service's log. */
  readonly requestId?: string;

  constructor(response: Response, body: string, found?: string) {
    const problem = read(body, generated.instanceOfProblem, generated.ProblemFromJSON);
    const { title, detail } = problem ?? unexpected(response, body, found);
    super(response, `${response.status} ${title}: ${detail}`);
    if (problem) this.problem = problem;
    const requestId = response.headers.get('X-Request-Id');
    if (requestId) this.requestId = requestId;
    // Not enumerable: otherwise, printing the error would bury its message in the members of a Response.
    Object.defineProperty(this, 'response', { enumerable: false });
  }
}

/** Describes a response that is neither a page nor a problem: a proxy may send anything. */
function unexpected({ status, ok, headers }: Response, body: string, found?: string) {
  if (status === 304) return { title: 'Not Modified', detail: 'pageIfChanged returns this as a value' };
  const type = headers.get('Content-Type') ?? 'no Content-Type';
  const described = ok ? `not a page of numbers: ${body.slice(0, 100)}` : `${type} instead of application/problem+json`;
  return { title: 'Unexpected Response', detail: found ?? described };
}

export class BrandedPhoneNumbersApi extends generated.BrandedPhoneNumbersApi {
  declare protected configuration: Configuration;
  private pace: Pacing = (send) => send();

  constructor(configuration = new Configuration()) {
    super(configuration);
  }

  /** Returns a copy of the client that sends each attempt through `pace`. */
  withPace(pace: Pacing): BrandedPhoneNumbersApi {
    const paced = this.withMiddleware<BrandedPhoneNumbersApi>();
    paced.pace = pace;
    return paced;
  }

  /** Sends unknown filters as well, which JavaScript code can pass, so that the service rejects them and says why. */
  override async listBrandedPhoneNumbersRequestOpts(
    filters: generated.ListBrandedPhoneNumbersRequest,
  ): Promise<generated.RequestOpts> {
    const options = await super.listBrandedPhoneNumbersRequestOpts(filters);
    return { ...options, query: { ...filters, ...options.query } };
  }

  protected override async request(
    { query = {}, ...context }: generated.RequestOpts,
    initOverrides?: RequestInit | generated.InitOverrideFunction,
  ): Promise<Response> {
    checkBaseUrl(this.configuration.basePath);
    let aborted: AbortSignal | null | undefined;
    const withSignal: generated.InitOverrideFunction = async (given) => {
      const init = typeof initOverrides === 'function' ? await initOverrides(given) : initOverrides;
      aborted = init?.signal;
      return init ?? {};
    };
    const send = () => this.exchange({ ...context, query: withoutEmpty(query) }, withSignal);
    return retrying(send, this.pace, this.configuration.retryFor, () => aborted);
  }

  private async exchange(context: generated.RequestOpts, overrides: generated.InitOverrideFunction): Promise<Response> {
    const limit = new TimeLimit(this.configuration.timeout);
    const withLimit: generated.InitOverrideFunction = async (given) => {
      const init = await overrides(given);
      limit.abortWith(init.signal);
      // A redirect is not followed: fetch would leave out the key, and the service would respond that it is missing.
      return { ...init, redirect: 'manual', signal: limit.signal };
    };
    try {
      const received = await super.request(context, withLimit).catch((error) => {
        if (error instanceof generated.ResponseError) return error.response;
        throw error;
      });
      const redirect = redirectOf(received, this.configuration.basePath + context.path, context.path);
      if (received.type === 'opaqueredirect') throw new ResponseError(received, '', redirect);
      // Reads the body here, so that the code below also handles a connection that breaks in the middle of it.
      const body = await received.arrayBuffer();
      const response = new Response(body.byteLength ? body : null, received);
      const text = new TextDecoder().decode(body);
      if (response.ok && read(text, (json) => conforms(json, PAGE_SCHEMA), Boolean)) return response;
      throw new ResponseError(response, text, redirect);
    } catch (error) {
      if (error instanceof ResponseError) throw error;
      limit.signal.throwIfAborted();
      const cause = error instanceof generated.FetchError ? error.cause : (error as Error);
      const { message, code } = (cause.cause ?? {}) as { message?: string; code?: string };
      throw new generated.FetchError(cause, [cause.message, message || code].filter(Boolean).join(': '));
    } finally {
      limit.end();
    }
  }
}

/** @throws TypeError if there is no scheme. Not a FetchError, after which requests are retried */
function checkBaseUrl(basePath: string): void {
  // In browsers, it may be relative to the address of the page.
  const { location } = globalThis as { location?: { href: string } };
  const url = URL.canParse(basePath, location?.href) ? new URL(basePath, location?.href) : undefined;
  if (url?.protocol !== 'http:' && url?.protocol !== 'https:')
    throw new TypeError(`the base URL must begin with http:// or https://, unlike ${basePath}`);
}

/** Returns what the error of a redirect says; undefined if a response is not a redirect. */
function redirectOf({ status, headers, type }: Response, url: string, path: string): string | undefined {
  const location = headers.get('Location');
  if (type !== 'opaqueredirect' && (!location || status < 300 || status > 399)) return undefined;
  // Browsers hide where a redirect leads to.
  const absolute = location && URL.canParse(location, url) ? new URL(location, url).href : location;
  const target = (absolute ?? 'another address').replace(/[?#].*/, '');
  return `redirected to ${target.endsWith(path) ? target.slice(0, -path.length) : target}: set that as the base URL`;
}

/**
 * Removes missing values and empty arrays, which mean no filter: an empty array would be sent as `carrier=`.
 * @throws TypeError for an array with a missing value, which would be sent as `carrier=null`
 */
function withoutEmpty(query: generated.HTTPQuery): generated.HTTPQuery {
  for (const [name, value] of Object.entries(query)) {
    const index = Array.isArray(value) ? value.findIndex((item) => item == null) : -1;
    if (index >= 0) throw new TypeError(`${name}[${index}] is ${(value as unknown[])[index]}; leave it out`);
  }
  return Object.fromEntries(
    Object.entries(query).filter(([, value]) => value != null && !(Array.isArray(value) && value.length === 0)),
  );
}

/** Parses JSON of the expected type. Returns undefined for anything else: HTML, other JSON, nothing. */
function read<T>(text: string, isExpected: (json: object) => boolean, from: (json: unknown) => T): T | undefined {
  try {
    const json = JSON.parse(text);
    return isExpected(json) ? from(json) : undefined;
  } catch {
    return undefined;
  }
}
