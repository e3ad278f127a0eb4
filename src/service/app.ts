/** The service, without a port: its parts, and the steps of a request in order. */
import { createServer, type Server } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import express from 'express';
import { listBrandedPhoneNumbers as operation } from '../../generated/types/apis/index.js';
import { type Config, publicPath } from '../config/config.js';
import { Connection, type Database } from '../database/connection.js';
import type { Obstacle } from '../database/migrations.js';
import { Reader, readsPerConnection } from '../database/reads.js';
import { trustedProxies } from '../keys/client.js';
import { identifyByAddress, identifyByApiKey, prepareFindKeys, prepareRecordUse } from '../keys/identify.js';
import { countExpiringKeys } from '../keys/keys.js';
import type { Log } from '../log.js';
import { createMetrics, type Metrics } from '../metrics.js';
import { docs } from './docs/docs.js';
import { readPackages } from './docs/packages.js';
import { type CheckReadiness, health, prepareReadiness, READY_STATEMENT_TIMEOUT_MS } from './health.js';
import { allowOrigins } from './http/cors.js';
import { createHttpServer } from './http/httpServer.js';
import { noSuchPath, problemHandler } from './http/problemResponse.js';
import { protocolCheck } from './http/protocol.js';
import { listBrandedPhoneNumbers } from './listBrandedPhoneNumbers.js';
import { unavailable } from './problem/problem.js';
import { createRateLimit } from './rateLimit/rateLimit.js';
import { warmUpValidator } from './request/validator.js';
import { failureLog, refusalLog, requestLog } from './requestLog.js';

const CLOSE_TIMEOUT_SECONDS = 1;
/** The time after which PostgreSQL cancels a page's statement. With ten million numbers in memory, the slowest page takes 33 ms. */
const STATEMENT_TIMEOUT_MS = 1000;
const WARM_UP_TIMEOUT_MS = 2000;
/** The time limit of counting the keys that expire soon, which a scrape waits for. */
const KEYS_TIMEOUT_MS = 900;
/** Milliseconds of a request's time that are reserved for sending its response. */
const SEND_RESERVE_MS = 500;

/** Creates the service without listening. Nothing is sent to the database before `begin` or the first request. */
export function openService(config: Config, databaseUrl: string, log: Log) {
  const timeLimitMs = config.REQUEST_TIMEOUT_SECONDS * 1000 - SEND_RESERVE_MS;
  const readsAtOnce = readsPerConnection(timeLimitMs, STATEMENT_TIMEOUT_MS);
  const metrics = createMetrics(readsAtOnce * config.DATABASE_CONNECTIONS);
  const openReader = (size: number, statementTimeout: number, reported: Pick<Metrics, 'setQueries'>) => {
    const limits = { statementTimeout, queriesAtOnce: readsAtOnce };
    return new Reader((onBroken) => new Connection(databaseUrl, { ...limits, onBroken }), size, log, reported);
  };
  const reader = openReader(config.DATABASE_CONNECTIONS, STATEMENT_TIMEOUT_MS, metrics);
  // /readyz has its own connection, so that pages don't delay its check. The metrics count pages alone.
  const healthReader = openReader(1, READY_STATEMENT_TIMEOUT_MS, { setQueries() {} });
  const readers = [reader, healthReader];
  const rateLimit = createRateLimit(config, databaseUrl, log, metrics);
  let obstacle: Obstacle | undefined;
  let isStopping = false;
  const checkReadiness = prepareReadiness({
    reader: healthReader,
    // If it can't have that connection, the service is ready as long as pages can be read.
    fallback: reader,
    obstacle: () => (isStopping ? { reason: 'stopping' } : obstacle),
  });
  metrics.collectReadiness(async () => (await checkReadiness()) === undefined);
  let identify = identifyByAddress;
  if (config.AUTH === 'api-key') {
    identify = identifyByApiKey(reader, prepareFindKeys(prepareRecordUse(databaseUrl)));
    const count = () => healthReader.read(countExpiringKeys, performance.now() + KEYS_TIMEOUT_MS);
    metrics.collectExpiringKeys(() => count().catch(() => Number.NaN));
  }
  const listNumbers = listBrandedPhoneNumbers({
    identify(request, deadline) {
      // Here, since it is the first step: the database may still lack the schema or its numbers, and the limit its table.
      if (obstacle) throw unavailable('The service is starting.');
      return identify(request, deadline);
    },
    rateLimit,
    reader,
    timeLimitMs,
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
    if (isStopping) response.setHeader('Connection', 'close');
    checkProtocol(request);
    next();
  });
  if (config.CORS_ORIGINS) app.use(operation.path, allowOrigins(config.CORS_ORIGINS));
  app.all(operation.path, listNumbers);
  app.use(health(checkReadiness, false));
  app.use(docs(config, readPackages(log)));

  app.use((request) => {
    throw noSuchPath(request, publicPath(config));
  });
  app.use(problemHandler(failureLog(log), publicPath(config)));

  const { server, finish } = createHttpServer(app, config, {
    logRefusal: refusalLog(log, metrics),
    onCutOff(count, bytes) {
      metrics.countCutOff(count);
      log.warn({ count, bytes }, 'connections cut off: too many unread responses were held for clients');
    },
  });
  const operatorServer = createOperatorServer(config, metrics, checkReadiness);
  return {
    server,
    operatorServer,
    /** Sets why the start is not finished, which `/readyz` reports. */
    setObstacle(next: Obstacle | undefined) {
      obstacle = next;
    },
    /**
     * Makes the service ready, once it is connected to the database and to the rate limit's store, so that the first requests
     * are as fast as later ones. The database must have been migrated.
     * @throws {UserError} if the rate limit's store rejects the service
     */
    async begin() {
      await warmUpValidator();
      const select = ({ $client }: Database) => $client.unsafe('SELECT');
      // If the database can't be read, /readyz says so.
      const warmUp = (opened: Reader) => opened.read(select, performance.now() + WARM_UP_TIMEOUT_MS).catch(() => {});
      await Promise.all([rateLimit.warmUp(), ...readers.map(warmUp)]);
      obstacle = undefined;
    },
    /** Serves for another `delay` seconds, unready, then finishes running requests within REQUEST_TIMEOUT_SECONDS + 1.5 s. */
    async close(delay = 0) {
      isStopping = true;
      await sleep(delay * 1000);
      await finish();
      operatorServer?.close();
      operatorServer?.closeAllConnections();
      await Promise.all([rateLimit.close(), ...readers.map((opened) => opened.close(CLOSE_TIMEOUT_SECONDS))]);
    },
  };
}

/** Creates the server of metrics and health for operators; undefined unless METRICS_PORT is set. */
function createOperatorServer(config: Config, metrics: Metrics, checkReadiness: CheckReadiness): Server | undefined {
  if (config.METRICS_PORT === undefined) return undefined;
  metrics.collectDefaults();
  const app = express();
  app.disable('x-powered-by');
  app.use((_request, response, next) => {
    response.setHeader('X-Content-Type-Options', 'nosniff');
    next();
  });
  app.use(health(checkReadiness, true));
  app.get('/metrics', async (_request, response) => {
    response.type(metrics.contentType).send(await metrics.text());
  });
  return createServer({ keepAliveTimeout: config.KEEP_ALIVE_SECONDS * 1000 }, app);
}
