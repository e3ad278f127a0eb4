/** The application, without a port: the steps of a request in order, and the parts that each step uses. */
import express, { type RequestHandler } from 'express';
import { listBrandedPhoneNumbers as operation } from '../../generated/types/apis/index.js';
import { type Config, publicPath } from '../config/config.js';
import type { Reader } from '../database/reads.js';
import { trustedProxies } from '../keys/client.js';
import { identifyByAddress, identifyByApiKey, prepareFindKeys } from '../keys/identify.js';
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import { preparePages } from '../page/page.js';
import { docs } from './docs/docs.js';
import { readPackages } from './docs/packages.js';
import { allowOrigins } from './http/cors.js';
import { notFound, problemHandler } from './http/problemResponse.js';
import { protocolCheck } from './http/protocol.js';
import { listBrandedPhoneNumbers } from './listBrandedPhoneNumbers.js';
import { unavailable } from './problem/problem.js';
import type { RateLimit } from './rateLimit/rateLimit.js';
import { failureLog, requestLog } from './requestLog.js';

export interface Dependencies {
  config: Config;
  reader: Reader;
  rateLimit: RateLimit;
  log: Log;
  metrics: Metrics;
  /** Returns whether the start is not finished: the list is then a 503. */
  isStarting(): boolean;
  /** Aborted when the service begins to stop. */
  stopping: AbortSignal;
  /** The routes `/healthz` and `/readyz`. */
  health: RequestHandler;
}

/** Milliseconds of a request's time that are reserved for sending its response. */
const SEND_RESERVE_MS = 500;

/** Returns the milliseconds within which a request's response must be ready. */
export const timeLimitOf = ({ REQUEST_TIMEOUT_SECONDS }: Config) => REQUEST_TIMEOUT_SECONDS * 1000 - SEND_RESERVE_MS;

/** Creates the application. */
export function createApp(dependencies: Dependencies) {
  const { config, reader, rateLimit, log, metrics, isStarting, stopping, health } = dependencies;
  const identify = config.AUTH === 'api-key' ? identifyByApiKey(reader, prepareFindKeys()) : identifyByAddress;
  const listNumbers = listBrandedPhoneNumbers({
    identify(request, deadline) {
      // The database may still lack the schema or its numbers, and the limit its table.
      if (isStarting()) throw unavailable('The service is starting.');
      return identify(request, deadline);
    },
    rateLimit,
    reader,
    readPage: preparePages(),
    timeLimitMs: timeLimitOf(config),
    publicUrl: config.PUBLIC_URL,
  });

  const app = express();
  app.disable('x-powered-by');
  // Pages have their own; problems need none.
  app.disable('etag');
  app.enable('strict routing');
  app.enable('case sensitive routing');
  // The operation parses its query string itself, strictly.
  app.set('query parser', false);
  app.set('trust proxy', trustedProxies(config.TRUST_PROXY));

  const logRequest = requestLog(log, metrics);
  const checkProtocol = protocolCheck(config);
  // Three steps share a handler, and the operation precedes all other routes, because each layer of Express takes time and
  // nearly all requests are for the list.
  app.use((request, response, next) => {
    logRequest(request, response);
    // Makes the client open a new connection, which reaches another instance.
    if (stopping.aborted) response.setHeader('Connection', 'close');
    checkProtocol(request);
    next();
  });
  if (config.CORS_ORIGINS) app.use(operation.path, allowOrigins(config.CORS_ORIGINS));
  app.all(operation.path, listNumbers);
  app.use(health);
  app.use(docs(config, readPackages(log)));

  app.use(notFound);
  app.use(problemHandler(failureLog(log), publicPath(config)));
  return app;
}
