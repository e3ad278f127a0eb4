/** The application, not yet listening: what happens to a request, in order. */
import express, { type RequestHandler } from 'express';
import { listBrandedPhoneNumbers as operation } from '../generated/types/apis/index.js';
import { type Config, publicPath } from './config.js';
import type { Database } from './database/connect.js';
import type { Reader } from './database/reads.js';
import { docs } from './docs.js';
import { createConcurrencyLimit } from './http/concurrencyLimit.js';
import { allowOrigins } from './http/cors.js';
import { notFound, problemHandler } from './http/problemResponse.js';
import { protocolCheck } from './http/protocol.js';
import { listBrandedPhoneNumbers } from './listBrandedPhoneNumbers.js';
import type { Log } from './log.js';
import type { Metrics } from './metrics.js';
import { preparePages } from './page/page.js';
import type { RateLimit } from './rateLimit/rateLimit.js';
import { identifyByAddress, identifyByApiKey } from './request/apiKeys.js';
import { trustedProxies } from './request/client.js';
import { prepareFindKeys } from './request/keyLookups.js';
import { failureLog, requestLog } from './requestLog.js';

export interface Dependencies {
  config: Config;
  database: Database;
  reader: Reader;
  rateLimit: RateLimit;
  log: Log;
  metrics: Metrics;
  /** Whether the service is about to stop. */
  isStopping(): boolean;
  /** The routes of health. */
  health: RequestHandler;
}

/** Milliseconds of a request's time that are reserved for sending its answer. */
const TIME_TO_ANSWER_MS = 500;

/** Puts the application together. */
export function createApp({ config, database, reader, rateLimit, log, metrics, isStopping, health }: Dependencies) {
  const readPage = preparePages(database.$client);
  const findKeys = prepareFindKeys(database);
  const timeoutMs = config.REQUEST_TIMEOUT_SECONDS * 1000 - TIME_TO_ANSWER_MS;
  const listNumbers = listBrandedPhoneNumbers({
    concurrencyLimit: createConcurrencyLimit(config.MAX_REQUESTS_IN_FLIGHT, metrics),
    identify:
      config.AUTH === 'api-key'
        ? identifyByApiKey((hashes) => reader.read(() => findKeys(hashes), timeoutMs))
        : identifyByAddress,
    rateLimit,
    readPage: (request, limitMs, needed) => reader.read((signal) => readPage(request, signal), limitMs, needed),
    timeoutMs,
    publicUrl: config.PUBLIC_URL,
  });

  const app = express();
  app.disable('x-powered-by');
  app.enable('strict routing');
  app.enable('case sensitive routing');
  // The operation reads its query string itself, strictly.
  app.set('query parser', false);
  app.set('trust proxy', trustedProxies(config.TRUST_PROXY));

  const logRequest = requestLog(log, metrics);
  const checkProtocol = protocolCheck(config);
  // One handler, and the operation first: each layer adds to a request's time, and nearly all requests are for the list.
  app.use((request, response, next) => {
    logRequest(request, response);
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
  app.use(problemHandler(failureLog(log), publicPath(config)));
  return app;
}
