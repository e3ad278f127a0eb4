/** The application, not yet listening: what happens to a request, in order. */
import { randomUUID } from 'node:crypto';
import express, { type Request, type RequestHandler, type Response } from 'express';
import { listBrandedPhoneNumbers as operation } from '../generated/types/apis/index.js';
import { createConcurrencyLimit } from './concurrencyLimit.js';
import type { Config } from './config.js';
import { causeOf, withoutValues } from './database/errors.js';
import type { Reader } from './database/reads.js';
import { docs } from './docs.js';
import { listBrandedPhoneNumbers } from './listBrandedPhoneNumbers.js';
import type { Log } from './log.js';
import type { Metrics } from './metrics.js';
import type { PreparedStatements } from './preparedStatements.js';
import { answerProblem, notFound } from './problem/problem.js';
import type { RateLimit } from './rateLimit/rateLimit.js';
import { identifyByAddress, identifyByApiKey } from './request/apiKeys.js';
import { allowOrigins } from './request/cors.js';
import { KEY_LOOKUP_TIMEOUT_MS } from './request/keyLookups.js';
import { protocolCheck } from './request/protocol.js';

export interface Dependencies {
  config: Config;
  reader: Reader<PreparedStatements>;
  rateLimit: RateLimit;
  log: Log;
  metrics: Metrics;
  /** Whether the service is about to stop. */
  isStopping(): boolean;
  /** The routes of health. */
  health: RequestHandler;
}

/** Milliseconds of a request's time that are kept for its answer. */
const TIME_TO_ANSWER_MS = 500;

/** Puts the application together. */
export function createApp({ config, reader, rateLimit, log, metrics, isStopping, health }: Dependencies) {
  const findKeys = (hashes: string[]) => reader.read((prepared) => prepared.findKeys(hashes), KEY_LOOKUP_TIMEOUT_MS);
  const listNumbers = listBrandedPhoneNumbers({
    concurrencyLimit: createConcurrencyLimit(config.MAX_REQUESTS_IN_FLIGHT, metrics),
    identify: config.AUTH === 'api-key' ? identifyByApiKey(findKeys) : identifyByAddress,
    rateLimit,
    readPage: (request, limitMs) => reader.read(({ readPage }, signal) => readPage(request, signal), limitMs),
    timeoutMs: config.REQUEST_TIMEOUT_SECONDS * 1000 - TIME_TO_ANSWER_MS,
  });

  const app = express();
  app.disable('x-powered-by');
  app.enable('strict routing');
  app.enable('case sensitive routing');
  // The operation reads its query string itself, strictly.
  app.set('query parser', false);
  app.set('trust proxy', config.TRUST_PROXY);

  const checkProtocol = protocolCheck(config);
  // One handler, and the operation first: each layer adds to a request's time, and nearly all are for this operation.
  app.use((request, response, next) => {
    nameRequest(request, response);
    logWhenClosed(request, response, log, metrics);
    // While stopping, closes each connection after its answer, so that the client goes on with another instance.
    if (isStopping()) response.setHeader('Connection', 'close');
    checkProtocol(request);
    next();
  });
  if (config.CORS_ORIGINS) app.use(operation.path, allowOrigins(config.CORS_ORIGINS));
  app.all(operation.path, listNumbers);
  app.use(health);
  app.use(docs(config));

  app.use(notFound);
  app.use(
    answerProblem((error, request) =>
      log.error({ err: withoutValues(causeOf(error)), requestId: request.id }, 'request failed'),
    ),
  );
  return app;
}

declare global {
  namespace Express {
    interface Request {
      id: string;
    }
    /** What a handler adds to the request's log line. */
    interface Locals {
      /** Who the rate limit counted. */
      client?: string;
      /** The items of the page. */
      rows?: number;
    }
  }
}

/** Safe in a log line, and not an API key that someone put into the wrong header. */
const REQUEST_ID = /^(?!.*bpn_)[\w.:-]{1,128}$/;
/** What may be a phone number, however its digits are grouped; an id of more digits can't be one. */
const PHONE_NUMBER = /(?<![A-Za-z\d])\d(?:[._:-]?\d){6,14}(?![A-Za-z\d])/;
/** Never a phone number, though some of its groups may be all digits. */
const UUID = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/i;

/** Uses the caller's X-Request-Id where it is safe, else creates one. */
function nameRequest(request: Request, response: Response): void {
  const given = request.get('X-Request-Id') ?? '';
  request.id = isLoggable(given) ? given : randomUUID();
  response.setHeader('X-Request-Id', request.id);
}

function isLoggable(id: string): boolean {
  return REQUEST_ID.test(id) && (UUID.test(id) || !PHONE_NUMBER.test(id));
}

/** Logs the route, not the path or the query, which may name phone numbers. */
function logWhenClosed(request: Request, response: Response, log: Log, metrics: Metrics): void {
  const start = performance.now();
  response.once('close', () => {
    const { locals, statusCode: status } = response;
    const milliseconds = performance.now() - start;
    // An unknown address has no route.
    const route: string | undefined = request.route?.path;
    metrics.answered(route === operation.path ? 'list' : 'other', status, milliseconds / 1000);
    log.info({
      requestId: request.id,
      method: request.method,
      route,
      status,
      milliseconds: Math.round(milliseconds * 10) / 10,
      rows: locals.rows,
      client: locals.client,
      // The client disconnected before its answer was sent.
      ...(response.writableFinished ? {} : { aborted: true }),
    });
  });
}
