/** The running service: opens what the application needs, listens, and closes all of it in order. */
import { createServer, type RequestListener } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import express, { type RequestHandler } from 'express';
import { createApp } from './app.js';
import type { Config } from './config.js';
import { closeDatabase, openDatabase } from './database/connect.js';
import { Reader } from './database/reads.js';
import { type Obstacle, prepareSchemaCheck } from './database/version.js';
import { health } from './health.js';
import { limitConnections, maxConnections } from './http/connections.js';
import { createHttpServer, finish, listen, urlOf } from './http/httpServer.js';
import type { Log } from './log.js';
import { createMetrics, type Metrics } from './metrics.js';
import { migrationsFolder } from './packageFolder.js';
import { createRateLimit } from './rateLimit/rateLimit.js';
import { warmUpValidator } from './request/validator.js';

/** At a stop, seconds for the connections to the database before they are cut. */
const CLOSE_TIMEOUT_SECONDS = 1;
/** PostgreSQL cancels a statement of a page after this time; with ten million numbers, the slowest take 64 ms. */
const STATEMENT_TIMEOUT_MS = 1000;

/** How long the start waits for the first connection that pages are read by. */
const WARM_UP_TIMEOUT_MS = 2000;

const STOPPING: Obstacle = { reason: 'stopping' };

export type Service = Awaited<ReturnType<typeof startService>>;

/** Opens the parts of the service; nothing is sent to the database before the first request. */
export function openService(config: Config, databaseUrl: string, log: Log) {
  const connections = maxConnections(config, log);
  const metrics = createMetrics(config.MAX_REQUESTS_IN_FLIGHT);
  const database = openDatabase(databaseUrl, {
    connections: config.DATABASE_CONNECTIONS,
    statementTimeout: STATEMENT_TIMEOUT_MS,
  });
  const reader = new Reader(database, log, metrics);
  const checkSchema = prepareSchemaCheck(database, migrationsFolder);
  const rateLimit = createRateLimit(config, databaseUrl, log, metrics);
  let stopping = false;
  const isStopping = () => stopping;
  let obstacle: Obstacle | undefined;
  const checks = { reader, checkSchema, unready: () => (stopping ? STOPPING : obstacle) };
  const healthRoutes = health(checks, false);
  const app = createApp({ config, database, reader, rateLimit, log, metrics, isStopping, health: healthRoutes });
  const server = createHttpServer(app, config);
  limitConnections(server, connections);
  return {
    server,
    /** Metrics and health, for the operator only, if METRICS_PORT is set. */
    operatorServer:
      config.METRICS_PORT === undefined
        ? undefined
        : createServer(
            { keepAliveTimeout: config.KEEP_ALIVE_SECONDS * 1000 },
            operatorApp(metrics, health(checks, true)),
          ),
    /** Makes the service unready because of `reason`, or leaves it to the database. */
    setObstacle(reason: Obstacle | undefined) {
      obstacle = reason;
    },
    /** Makes the first requests as quick as the later ones. */
    async warmUp() {
      await warmUpValidator();
      // A database that can't be read yet shows in /readyz.
      const connected = reader.read(checkSchema, WARM_UP_TIMEOUT_MS).catch(() => {});
      await Promise.all([rateLimit.warmUp(), connected]);
    },
    /** Makes the service unready, and ends its connections with their next answer. */
    beginStop() {
      stopping = true;
    },
    async close() {
      await rateLimit.close();
      reader.close();
      await closeDatabase(database, CLOSE_TIMEOUT_SECONDS);
    },
  };
}

/** Starts the service, which listens at once but is not ready before `begin` has resolved. */
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
    /** Where it listens, such as `http://127.0.0.1:3000`. */
    url: urlOf(server, config.HOST),
    /** Where its metrics are, if METRICS_PORT is set. */
    metricsUrl: operatorServer && urlOf(operatorServer, config.METRICS_HOST),
    /** Says in `/readyz` what the start waits for. */
    waitFor: setObstacle,
    /**
     * Makes the service ready; the database has to be migrated.
     * @throws {UserError} if the store of the rate limit rejects the service
     */
    async begin() {
      await warmUp();
      setObstacle(undefined);
    },
    /** Serves for `delay` seconds, unready, then finishes the running requests, in REQUEST_TIMEOUT_SECONDS and 2 s at most. */
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

/** The application on METRICS_PORT. */
function operatorApp(metrics: Metrics, healthRoutes: RequestHandler): RequestListener {
  metrics.collectDefaults();
  const app = express();
  app.disable('x-powered-by');
  app.use((_request, response, next) => {
    response.setHeader('X-Content-Type-Options', 'nosniff');
    next();
  });
  app.use(healthRoutes);
  app.get('/metrics', async (_request, response) => {
    response.type(metrics.contentType).send(await metrics.text());
  });
  return app;
}
