/**
 * The contract's validator: express-openapi-validator, called with requests that have only a query. The request and the
 * response are real ones of Node, because instrumentation may use them. The validator's handlers are called directly, not by
 * a router, so that instrumentation adds no spans for them.
 */
import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import express, { type Request } from 'express';
import * as OpenApiValidator from 'express-openapi-validator';
import {
  type ListBrandedPhoneNumbersRequest,
  listBrandedPhoneNumbers as operation,
} from '../../../generated/types/apis/index.js';
import { contract, withExactPatterns } from '../../contract.js';

/** The parameters of a valid query with their defaults, except the cursor. */
export type ValidParameters = Omit<ListBrandedPhoneNumbersRequest, 'nextCursor'> & { size: number };

/** An invalid value: its path, such as `/query/status/1`, and a code, such as `enum.openapi.validation`. */
export interface Finding {
  path: string;
  errorCode?: string;
}

interface Validation {
  /** One finding for each invalid value, even if it violates several keywords. */
  findings: Finding[];
  /** The values with defaults, and with numbers instead of digits; valid only if there are no findings. */
  parameters: ValidParameters;
}

/** Compiles the contract's schemas at startup. In the first request, that would take longer than the rate limit allows. */
export async function warmUpValidator(): Promise<void> {
  await validate({});
}

/** Validates the decoded values of a query against the contract. Rejects only if the validator itself fails. */
export async function validate(values: Record<string, string | string[]>): Promise<Validation> {
  const request = new QueryRequest({ ...values });
  const response = new ServerResponse(request);
  const findings = new Map<string, Finding>();
  try {
    for (const handle of handlers) {
      await new Promise<void>((resolve, reject) => {
        handle(request, response, (error) => (error ? reject(error) : resolve()));
      });
    }
  } catch (error) {
    const { errors } = error as { errors?: Finding[] };
    if (!errors) throw error;
    for (const finding of errors) if (!findings.has(finding.path)) findings.set(finding.path, finding);
  }
  return { findings: [...findings.values()], parameters: request.query as ValidParameters };
}

/** The settings from which the validator learns how to match paths. */
const app = express().enable('strict routing').enable('case sensitive routing');

/** An `IncomingMessage` needs a socket; this one is never connected. */
const NO_SOCKET = new Socket();

/**
 * The members of a request that express-openapi-validator reads. It reads headers as well, but they stay empty: for each
 * new Content-Type it would compile a schema and keep it.
 */
class QueryRequest extends IncomingMessage {
  override method: string = operation.method;
  override url: string = operation.path;
  // Members that Express adds to a request:
  app: Request['app'] = app;
  originalUrl: string = operation.path;
  path: string = operation.path;
  baseUrl = '';
  params = {};
  /** The validator adds defaults, and replaces digits by numbers. */
  query: Record<string, unknown>;

  constructor(query: Record<string, unknown>) {
    super(NO_SOCKET);
    this.query = query;
  }
}

type Handler = (request: QueryRequest, response: ServerResponse, next: (error?: unknown) => void) => unknown;

const handlers = OpenApiValidator.middleware({
  apiSpec: documentForValidator(),
  // CI checks the document. To check it again would take a seventh of the time of each start.
  validateApiSpec: false,
  validateRequests: { allErrors: true },
  validateResponses: false,
  validateSecurity: false,
  fileUploader: false,
}) as Handler[];

/**
 * Returns the contract with its exact patterns, and with `allowReserved` for each parameter: otherwise, the validator would
 * reject reserved characters that are not percent-encoded, as in `status=submitted+for+review`. The published contract
 * does not have `allowReserved`, because clients would then send `+` and `&` unencoded.
 */
function documentForValidator() {
  const document = withExactPatterns(contract);
  for (const parameter of Object.values(document.components.parameters)) {
    Object.assign(parameter, { allowReserved: true });
  }
  return document as unknown as Parameters<typeof OpenApiValidator.middleware>[0]['apiSpec'];
}
