/** The generated operations, with a time limit for each request and errors that say what the service said. */
import * as generated from './generated/index.js';

export interface ConfigurationParameters extends generated.ConfigurationParameters {
  /** How long a request may take until its answer is complete, in milliseconds; 30,000 by default. */
  timeout?: number;
}

export class Configuration extends generated.Configuration {
  readonly timeout: number;

  constructor(parameters: ConfigurationParameters = {}) {
    super(parameters);
    this.timeout = parameters.timeout ?? 30_000;
  }
}

/** An answer other than 2xx. Its message is `<status> <title>: <detail>`. */
export class ResponseError extends generated.ResponseError {
  constructor(
    response: Response,
    /** What the service said; undefined if the answer is not a problem, such as a proxy's. */
    readonly problem?: generated.Problem,
  ) {
    const found = response.headers.get('Content-Type') ?? 'no Content-Type';
    super(
      response,
      problem
        ? `${response.status} ${problem.title}: ${problem.detail}`
        : `${response.status} Unexpected Answer: ${found} instead of application/problem+json`,
    );
    // Printing it would bury the message in the members of a Response.
    Object.defineProperty(this, 'response', { enumerable: false });
  }
}

export class BrandedPhoneNumbersApi extends generated.BrandedPhoneNumbersApi {
  declare protected configuration: Configuration;

  constructor(configuration = new Configuration()) {
    super(configuration);
  }

  protected override async request(
    { query = {}, ...context }: generated.RequestOpts,
    initOverrides?: RequestInit | generated.InitOverrideFunction,
  ): Promise<Response> {
    const limit = AbortSignal.timeout(this.configuration.timeout);
    let signal = limit;
    const withSignal: generated.InitOverrideFunction = async (given) => {
      const init = typeof initOverrides === 'function' ? await initOverrides(given) : initOverrides;
      if (init?.signal) signal = AbortSignal.any([init.signal, limit]);
      return { ...init, signal };
    };
    try {
      const answer = await super.request({ ...context, query: withoutEmpty(query) }, withSignal).catch((error) => {
        if (error instanceof generated.ResponseError) return error.response;
        throw error;
      });
      // The body is read here, so that a connection that breaks in the middle of it is noticed here, too.
      const body = await answer.arrayBuffer();
      const response = new Response(body.byteLength ? body : null, answer);
      if (response.ok) return response;
      throw new ResponseError(response, readProblem(new TextDecoder().decode(body)));
    } catch (error) {
      if (error instanceof ResponseError) throw error;
      signal.throwIfAborted();
      const cause = error instanceof generated.FetchError ? error.cause : (error as Error);
      const { message, code } = (cause.cause ?? {}) as { message?: string; code?: string };
      throw new generated.FetchError(cause, [cause.message, message || code].filter(Boolean).join(': '));
    }
  }
}

/** An empty array means no filter; it would be sent as `carrier=`, an empty value. */
const withoutEmpty = (query: generated.HTTPQuery): generated.HTTPQuery =>
  Object.fromEntries(Object.entries(query).filter(([, value]) => !(Array.isArray(value) && value.length === 0)));

/** A proxy on the way may answer anything: HTML, other JSON, nothing. */
function readProblem(body: string): generated.Problem | undefined {
  try {
    const read = JSON.parse(body);
    return generated.instanceOfProblem(read) ? generated.ProblemFromJSON(read) : undefined;
  } catch {
    return undefined;
  }
}
