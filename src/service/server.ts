/** The running service: opens what the application needs, listens, and closes all of it in order. */
import { createServer, type RequestListener } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import express from 'express';
import type { Config } from '../config/config.js';
import { Connection, type Database } from '../database/connection.js';
import type { Connect } from '../database/pool.js';
import { Reader, readsPerConnection } from '../database/reads.js';
import { type Obstacle, prepareSchemaCheck } from '../database/version.js';
import { listExpiringKeys } from '../keys/keys.js';
import type { Log } from '../log.js';
import { createMetrics, type Metrics } from '../metrics.js';
import { migrationsFolder } from '../packageFolder.js';
import { createApp, timeLimitOf } from './app.js';
import { type CheckReadiness, health, prepareReadiness, READY_STATEMENT_TIMEOUT_MS } from './health.js';
import { limitConnections } from './http/connections.js';
import { createHttpServer, finish, listen, urlOf } from './http/httpServer.js';
import { createRateLimit } from './rateLimit/rateLimit.js';
import { warmUpValidator } from './request/validator.js';
import { refusalLog } from './requestLog.js';

/** Seconds that statements have to finish when the service is closed. */
const CLOSE_TIMEOUT_SECONDS = 1;
/** The time after which PostgreSQL cancels a page's statement. With ten million numbers in memory, the slowest page takes 33 ms. */
const STATEMENT_TIMEOUT_MS = 1000;
/** How long the start waits for the first connection to the database. */
const WARM_UP_TIMEOUT_MS = 2000;

/** The time limit of counting the keys that expire soon, which a scrape waits for. */
const KEYS_TIMEOUT_MS = 900;

const STOPPING: Obstacle = { reason: 'stopping' };

export type Service = Awaited<ReturnType<typeof startService>>;

/** Creates the service without listening. Nothing is sent to the database before `warmUp` or the first request. */
export function openService(config: Config, databaseUrl: string, log: Log) {
  const readsEach = readsPerConnection(timeLimitOf(config), STATEMENT_TIMEOUT_MS);
  const connections = config.DATABASE_CONNECTIONS;
  const metrics = createMetrics(readsEach * connections);
  const connectWith =
    (statementTimeout: number): Connect =>
    (onBroken) =>
      new Connection(databaseUrl, { statementTimeout, queriesAtOnce: readsEach, onBroken });
  const reader = new Reader(connectWith(STATEMENT_TIMEOUT_MS), connections, log, metrics);
  // /readyz has its own connection, so that pages don't delay its check.
  const healthReader = new Reader(connectWith(READY_STATEMENT_TIMEOUT_MS), 1, log, { setQueries() {} });
  const rateLimit = createRateLimit(config, databaseUrl, log, metrics);
  const stop = new AbortController();
  const stopping = stop.signal;
  let obstacle: Obstacle | undefined;
  const checkReadiness = prepareReadiness({
    reader: healthReader,
    // If it can't have that connection, the service is ready as long as pages can be read.
    fallback: reader,
    checkSchema: prepareSchemaCheck(migrationsFolder),
    obstacle: () => (stopping.aborted ? STOPPING : obstacle),
  });
  const countExpiringKeys = () =>
    healthReader
      .read(async (database) => (await listExpiringKeys(database)).length, performance.now() + KEYS_TIMEOUT_MS)
      .catch(() => Number.NaN);
  const expiringKeys = config.AUTH === 'api-key' ? countExpiringKeys : undefined;
  const parts = { config, reader, rateLimit, log, metrics, stopping };
  const app = createApp({ ...parts, isStarting: () => obstacle !== undefined, health: health(checkReadiness, false) });
  const server = createHttpServer(app, config, refusalLog(log, metrics));
  limitConnections(server, config.MAX_CONNECTIONS, (count, bytes) => {
    metrics.countCutOff(count);
    log.warn({ count, bytes }, 'connections cut off: too many headers and unread responses were held for clients');
  });
  return {
    server,
    /** Serves metrics and health to operators; undefined unless METRICS_PORT is set. */
    operatorServer:
      config.METRICS_PORT === undefined
        ? undefined
        : createServer(
            { keepAliveTimeout: config.KEEP_ALIVE_SECONDS * 1000 },
            operatorApp(metrics, checkReadiness, expiringKeys),
          ),
    /** Sets why the start is not finished; undefined if it is. */
    setObstacle(next: Obstacle | undefined) {
      obstacle = next;
    },
    /**
     * Connects to the database and to the rate limit's store, so that the first requests are as fast as later ones.
     * @throws {UserError} if the rate limit's store rejects the service
     */
    async warmUp() {
      await warmUpValidator();
      const select = ({ $client }: Database) => $client.unsafe('SELECT');
      // If the database can't be read, /readyz says so.
      const connect = (each: Reader) => each.read(select, performance.now() + WARM_UP_TIMEOUT_MS).catch(() => {});
      await Promise.all([rateLimit.warmUp(), connect(reader), connect(healthReader)]);
    },
    /** Makes the service unready, and closes each connection after its next response. */
    beginStop() {
      stop.abort();
    },
    async close() {
      await rateLimit.close();
      await Promise.all([reader, healthReader].map((each) => each.close(CLOSE_TIMEOUT_SECONDS)));
    },
  };
}

/** Starts the service: it listens, but is not ready until `begin` has resolved. */
export async function startService(config: Config, databaseUrl: string, log: Log) {
  const { server, operatorServer, warmUp, setObstacle, beginStop, close } = openService(config, databaseUrl, log);
  setObstacle({ reason: 'starting' });
  try {
    await listen(server, config, ['HOST', 'PORT']);
    if (operatorServer) await listen(operatorServer, config, ['METRICS_HOST', 'METRICS_PORT']);
  } catch (error) {
    server.close();
    await close();
    throw error;
  }
  return {
    /** Its URL, such as `http://127.0.0.1:3000`. */
    url: urlOf(server, config.HOST),
    /** The URL of its metrics; undefined unless METRICS_PORT is set. */
    metricsUrl: operatorServer && urlOf(operatorServer, config.METRICS_HOST),
    /** Sets why the start is not finished, which `/readyz` reports. */
    setObstacle,
    /**
     * Makes the service ready. The database must have been migrated.
     * @throws {UserError} if the rate limit's store rejects the service
     */
    async begin() {
      await warmUp();
      setObstacle(undefined);
    },
    /**
     * Stops the service: serves for another `delay` seconds, unready, then finishes the running requests, which takes at most
     * REQUEST_TIMEOUT_SECONDS + 2 s.
     */
    async close(delay = 0) {
      beginStop();
      await sleep(delay * 1000);
      await finish(server, config.REQUEST_TIMEOUT_SECONDS * 1000);
      operatorServer?.close();
      operatorServer?.closeAllConnections();
      await close();
    },
  };
}

/** Creates the application on METRICS_PORT, for operators only. */
function operatorApp(
  metrics: Metrics,
  checkReadiness: CheckReadiness,
  expiringKeys?: () => Promise<number>,
): RequestListener {
  metrics.collectDefaults();
  metrics.collectChecks(async () => (await checkReadiness()) === undefined, expiringKeys);
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
  return app;
}
