/**
 * The contract's validator: express-openapi-validator, given a request that has only a query. Both the request and the response
 * are Node's own, because instrumentation may use them. No router calls the handlers, so that they add no spans.
 */
import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import express, { type Request } from 'express';
import * as OpenApiValidator from 'express-openapi-validator';
import {
  type ListBrandedPhoneNumbersRequest,
  listBrandedPhoneNumbers as operation,
} from '../../generated/types/apis/index.js';
import { contract, withExactPatterns } from '../contract.js';

/** The parameters as the contract describes them, with its defaults, but without the cursor. */
export type ValidParameters = Omit<ListBrandedPhoneNumbersRequest, 'nextCursor'> & { size: number };

/** A fault of a value: its path, such as `/query/status/1`, and a code, such as `enum.openapi.validation`. */
export interface Finding {
  path: string;
  errorCode?: string;
}

interface Validation {
  /** One finding for each invalid value, even if it violates several keywords. */
  findings: Finding[];
  /** The parameters with defaults and numbers; valid only without findings. */
  parameters: ValidParameters;
}

/** Compiles the contract's schemas at startup: in the first request, that would take longer than the rate limit may. */
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

/** Says how routes are matched. */
const app = express().enable('strict routing').enable('case sensitive routing');

/** Never connected; an `IncomingMessage` needs one. */
const NO_SOCKET = new Socket();

/**
 * What express-openapi-validator reads of a request, beside its headers, which stay empty: for each Content-Type that it
 * meets, it would compile and keep a schema.
 */
class QueryRequest extends IncomingMessage {
  override method: string = operation.method;
  override url: string = operation.path;
  // What Express adds to a request:
  app: Request['app'] = app;
  originalUrl: string = operation.path;
  path: string = operation.path;
  baseUrl = '';
  params = {};
  /** The values of the query, into which the validator writes defaults and numbers. */
  query: Record<string, unknown>;

  constructor(query: Record<string, unknown>) {
    super(NO_SOCKET);
    this.query = query;
  }
}

type Handler = (request: QueryRequest, response: ServerResponse, next: (error?: unknown) => void) => unknown;

const handlers = OpenApiValidator.middleware({
  apiSpec: documentForValidator(),
  // CI lints the document; to check it again would take a seventh of each start.
  validateApiSpec: false,
  validateRequests: { allErrors: true },
  validateResponses: false,
  validateSecurity: false,
  fileUploader: false,
}) as Handler[];

/**
 * Returns the contract with its exact patterns, and with `allowReserved` on each parameter. The validator wants reserved
 * characters percent-encoded and so would refuse the specification's own `status=submitted+for+review`; if it were published,
 * `allowReserved` would make clients send `+` and `&` unencoded.
 */
function documentForValidator() {
  const document = withExactPatterns(contract);
  for (const parameter of Object.values(document.components.parameters)) {
    Object.assign(parameter, { allowReserved: true });
  }
  return document as unknown as Parameters<typeof OpenApiValidator.middleware>[0]['apiSpec'];
}
