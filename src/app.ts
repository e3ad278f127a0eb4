/** The application, not yet listening: what happens to a request, in order. */
import { randomUUID } from 'node:crypto';
import { DrizzleQueryError } from 'drizzle-orm';
import express, { type RequestHandler } from 'express';
import { listBrandedPhoneNumbers as operation } from '../generated/types/apis/index.js';
import { addressClient } from './client.js';
import type { Config } from './config.js';
import type { Database } from './database.js';
import { docs } from './docs.js';
import { health } from './health.js';
import { listBrandedPhoneNumbers } from './listBrandedPhoneNumbers.js';
import type { Log } from './log.js';
import { answerProblem, notFound, problem } from './problem.js';
import { preparePages } from './query.js';
import { readQueryString } from './queryString.js';
import type { RateLimit } from './rateLimit.js';
import { validateRequests } from './validation.js';

export interface Dependencies {
  config: Pick<Config, 'TRUST_PROXY'>;
  database: Database;
  rateLimit: RateLimit;
  log: Log;
}

/** Puts the application together. */
export function createApp({ config, database, rateLimit, log }: Dependencies) {
  const app = express();
  app.disable('x-powered-by');
  app.enable('strict routing');
  app.enable('case sensitive routing');
  // The query string is read by readQueryString, strictly.
  app.set('query parser', false);
  app.set('trust proxy', config.TRUST_PROXY);

  app.use(nameRequest, logRequest(log));
  app.use(health(database));
  app.use(docs());

  app.all(operation.path, onlyGet);
  app.get(operation.path, identifyClient, rateLimit.limit, readQueryString, ...validateRequests());
  app.get(operation.path, listBrandedPhoneNumbers(preparePages(database)));

  app.use(notFound);
  app.use(
    answerProblem((error, request) => {
      // What Drizzle wraps around a database error holds the query's values, which are not for the log.
      const err = error instanceof DrizzleQueryError ? error.cause : error;
      log.error({ err, requestId: request.id }, 'request failed');
    }),
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

const logRequest =
  (log: Log): RequestHandler =>
  (request, response, next) => {
    const start = performance.now();
    response.once('close', () => {
      const { locals, statusCode } = response;
      const milliseconds = Math.round((performance.now() - start) * 10) / 10;
      const path = request.path;
      log.info({
        requestId: request.id,
        method: request.method,
        path,
        status: statusCode,
        milliseconds,
        rows: locals.rows,
      });
    });
    next();
  };

const onlyGet: RequestHandler = (request, _response, next) => {
  if (request.method === operation.method) return next();
  throw problem('method-not-allowed', `${operation.path} answers ${operation.method}, not ${request.method}.`, {
    headers: { Allow: operation.method },
  });
};

const identifyClient: RequestHandler = (request, response, next) => {
  response.locals.client = addressClient(request);
  next();
};
