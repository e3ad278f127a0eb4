/** The application, not yet listening: what happens to a request, in order. */
import { randomUUID } from 'node:crypto';
import express, { type RequestHandler } from 'express';
import { listBrandedPhoneNumbers as operation } from '../generated/types/apis/index.js';
import { authenticateByAddress, authenticateByApiKey } from './apiKeys.js';
import type { Client } from './client.js';
import type { Config } from './config.js';
import type { Database } from './database.js';
import { docs } from './docs.js';
import { health } from './health.js';
import { boundInFlight } from './inFlight.js';
import { listBrandedPhoneNumbers } from './listBrandedPhoneNumbers.js';
import type { Log } from './log.js';
import type { Metrics } from './metrics.js';
import { answerProblem, notFound, problem } from './problem.js';
import { preparePages } from './query.js';
import { readQueryString } from './queryString.js';
import type { RateLimit } from './rateLimit.js';
import { causeOf, type Reader } from './reader.js';
import { validateRequests } from './validation.js';

export interface Dependencies {
  config: Pick<Config, 'AUTH' | 'MAX_REQUESTS_IN_FLIGHT' | 'REQUEST_TIMEOUT_SECONDS' | 'TRUST_PROXY'>;
  database: Database;
  reader: Reader;
  rateLimit: RateLimit;
  log: Log;
  metrics: Metrics;
  /** Whether the service is about to stop. */
  isStopping(): boolean;
}

/** Milliseconds of a request's time that are not its page's: the limit's and the key's. */
const BESIDE_THE_PAGE = 750;

/** Puts the application together. */
export function createApp({ config, database, reader, rateLimit, log, metrics, isStopping }: Dependencies) {
  const { identify, authorize } =
    config.AUTH === 'api-key' ? authenticateByApiKey(database, reader) : authenticateByAddress;
  const bound = boundInFlight(config.MAX_REQUESTS_IN_FLIGHT, metrics);
  const pages = preparePages(database);
  const timeLimit = config.REQUEST_TIMEOUT_SECONDS * 1000 - BESIDE_THE_PAGE;
  const app = express();
  app.disable('x-powered-by');
  app.enable('strict routing');
  app.enable('case sensitive routing');
  // The query string is read by readQueryString, strictly.
  app.set('query parser', false);
  app.set('trust proxy', config.TRUST_PROXY);

  app.use(nameRequest, logRequest(log, metrics), endConnections(isStopping));
  // Before the rest, since each layer that a request passes costs it time, and nearly all are of this operation.
  app.all(
    operation.path,
    onlyGet,
    bound,
    identify,
    rateLimit.begin,
    authorize,
    readQueryString,
    ...validateRequests(),
    listBrandedPhoneNumbers((request, response) =>
      rateLimit.whenPassed(response, () => reader.read(() => pages(request), timeLimit)),
    ),
    rateLimit.goFirst,
  );
  app.use(health(database, reader, isStopping));
  app.use(docs());

  app.use(notFound);
  app.use(
    answerProblem((error, request) => log.error({ err: causeOf(error), requestId: request.id }, 'request failed')),
  );
  return app;
}

declare global {
  namespace Express {
    interface Request {
      id: string;
    }
  }
}

/** Takes over the caller's X-Request-Id where it is fit for a log line, or makes one. */
const nameRequest: RequestHandler = (request, response, next) => {
  const given = request.get('X-Request-Id');
  request.id = given && /^[\w.:-]{1,128}$/.test(given) ? given : randomUUID();
  response.set('X-Request-Id', request.id);
  next();
};

/** The query stays out of the log: it may name phone numbers. */
const logRequest =
  (log: Log, metrics: Metrics): RequestHandler =>
  (request, response, next) => {
    const start = performance.now();
    response.once('close', () => {
      const { locals, statusCode: status } = response;
      const milliseconds = performance.now() - start;
      const path = request.path;
      metrics.answered(path === operation.path ? 'list' : 'other', status, milliseconds / 1000);
      log.info({
        requestId: request.id,
        method: request.method,
        path: path.slice(0, 200),
        status,
        milliseconds: Math.round(milliseconds * 10) / 10,
        rows: locals.rows,
        client: (locals.client as Client | undefined)?.id,
        // The client was gone before its answer was.
        ...(response.writableFinished ? {} : { aborted: true }),
      });
    });
    next();
  };

/** On the way to a stop, a client's next request goes to a connection of another instance. */
const endConnections =
  (isStopping: () => boolean): RequestHandler =>
  (_request, response, next) => {
    if (isStopping()) response.set('Connection', 'close');
    next();
  };

const onlyGet: RequestHandler = (request, _response, next) => {
  if (request.method === operation.method) return next();
  throw problem('method-not-allowed', `${operation.path} answers ${operation.method}, not ${request.method}.`, {
    headers: { Allow: operation.method },
  });
};
