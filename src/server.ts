/** The running service: opens what the application needs, listens, and closes all of it in order. */
import { once } from 'node:events';
import { createServer, IncomingMessage, type RequestListener, type Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import express, { type Express, type RequestHandler } from 'express';
import { createApp } from './app.js';
import { type Config, ConfigError } from './config.js';
import { closeDatabase, type Database, openDatabase } from './database.js';
import { health } from './health.js';
import type { Log } from './log.js';
import { createMetrics, type Metrics } from './metrics.js';
import { rawProblem } from './problem.js';
import { createRateLimit } from './rateLimit.js';
import { Reader } from './reader.js';

/** Bytes of a request's line and headers: enough for 50 long values of each name filter. */
const MAX_HEADER_SIZE = 128 * 1024;
/** Headers of one request. */
const MAX_HEADERS = 100;
/** Milliseconds for a client to send its headers, to send all of a request, and to take all of an answer. */
const HEADERS_LIMIT = 10_000;
const REQUEST_LIMIT = 15_000;
const ANSWER_LIMIT = 20_000;
/** Milliseconds that an idle connection is kept: longer than balancers keep theirs, so that they are the ones to end it. */
const IDLE_LIMIT = 75_000;
/** Milliseconds at a stop for running requests, and for the connections to the database, before they are cut. */
const FINISH_LIMIT = 5500;
const CLOSE_LIMIT = 1000;
/** Milliseconds of a request's time limit that are left when the database gives up a statement, to hear of it. */
const MARGIN = 1000;

export interface Service {
  /** Where it listens, such as `http://127.0.0.1:3000`. */
  url: string;
  /** Where its metrics are, if METRICS_PORT is set. */
  metricsUrl?: string;
  /** Stops in order: not ready at once, serving on for `delay` seconds, then finishing what runs, in 7 s at most. */
  close(delay?: number): Promise<void>;
}

/** All parts of a service that does not listen yet. */
export interface OpenService {
  server: Server;
  database: Database;
  /** Metrics and health, for the operator's eyes. */
  operatorServer: Server;
  /** Makes the first requests as quick as the later ones. */
  warmUp(): Promise<void>;
  /** Makes the service unready, and ends its connections with their next answer. */
  beginStop(): void;
  close(): Promise<void>;
}

/** Opens the parts of the service on a migrated database. */
export function openService(config: Config, databaseUrl: string, log: Log): OpenService {
  const metrics = createMetrics();
  const database = openDatabase(databaseUrl, {
    connections: config.DATABASE_CONNECTIONS,
    statementTimeout: Math.max(500, config.REQUEST_TIMEOUT_SECONDS * 1000 - MARGIN),
    onRenewal() {
      metrics.poolRenewed();
      log.warn('the connections to the database were given up for new ones');
    },
  });
  const reader = new Reader(database, log, metrics);
  const rateLimit = createRateLimit(config, databaseUrl, log, metrics);
  let stopping = false;
  const isStopping = () => stopping;
  const server = createHttpServer(createApp({ config, database, reader, rateLimit, log, metrics, isStopping }));
  server.maxConnections = config.MAX_CONNECTIONS;
  return {
    server,
    database,
    operatorServer: createServer(operatorApp(metrics, health(database, reader, isStopping))),
    warmUp: () => rateLimit.warmUp(),
    beginStop() {
      stopping = true;
    },
    async close() {
      await rateLimit.close();
      reader.close();
      await closeDatabase(database, CLOSE_LIMIT / 1000);
    },
  };
}

/** Starts the service on a migrated database. */
export async function startService(config: Config, databaseUrl: string, log: Log): Promise<Service> {
  const { server, operatorServer, warmUp, beginStop, close } = openService(config, databaseUrl, log);
  const { HOST, PORT, METRICS_HOST, METRICS_PORT } = config;
  try {
    await warmUp();
    await listen(server, PORT, HOST);
    if (METRICS_PORT !== undefined) await listen(operatorServer, METRICS_PORT, METRICS_HOST);
  } catch (error) {
    server.close();
    await close();
    throw error;
  }
  return {
    url: urlOf(server, HOST),
    ...(METRICS_PORT === undefined ? {} : { metricsUrl: urlOf(operatorServer, METRICS_HOST) }),
    async close(delay = 0) {
      beginStop();
      await sleep(delay * 1000);
      await finish(server);
      operatorServer.close();
      operatorServer.closeAllConnections();
      await close();
    },
  };
}

/** Takes no more connections and waits for the running requests, within their limit. */
async function finish(server: Server): Promise<void> {
  const closed = once(server, 'close');
  server.close();
  server.closeIdleConnections();
  const cut = setTimeout(() => server.closeAllConnections(), FINISH_LIMIT);
  await closed;
  clearTimeout(cut);
}

async function listen(server: Server, PORT: number, HOST: string): Promise<void> {
  server.listen(PORT, HOST);
  try {
    await once(server, 'listening');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EADDRINUSE') throw new ConfigError(`PORT ${PORT} of ${HOST} is taken; choose another`);
    if (code === 'EACCES') throw new ConfigError(`PORT ${PORT} of ${HOST} is not ours to listen on; choose another`);
    if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND')
      throw new ConfigError(`HOST ${HOST} is no address of this machine`);
    throw error;
  }
}

/** The HTTP server of the application, not yet listening; no client can hold it up or fill its memory. */
function createHttpServer(app: Express): Server {
  const server = createServer(
    {
      ...messagesOf(app),
      maxHeaderSize: MAX_HEADER_SIZE,
      headersTimeout: HEADERS_LIMIT,
      requestTimeout: REQUEST_LIMIT,
      keepAliveTimeout: IDLE_LIMIT,
      connectionsCheckingInterval: 1000,
    },
    (request, response) => {
      const late = setTimeout(() => response.socket?.destroy(), ANSWER_LIMIT);
      response.once('close', () => clearTimeout(late));
      app(request, response);
    },
  );
  server.maxHeadersCount = MAX_HEADERS;
  server.on('clientError', answerBrokenRequest);
  return server;
}

/**
 * Classes of requests and responses that have the application's methods from their birth. Express would change the
 * prototype of each one, after which V8 runs all code that touches them slowly: more than a third of a request's time.
 */
function messagesOf(app: Express) {
  class AppRequest extends IncomingMessage {}
  class AppResponse extends ServerResponse {}
  app.request = Object.setPrototypeOf(AppRequest.prototype, app.request);
  app.response = Object.setPrototypeOf(AppResponse.prototype, app.response);
  return { IncomingMessage: AppRequest, ServerResponse: AppResponse };
}

/** What is too broken, too large or too slow to be a request still gets a problem for an answer. */
function answerBrokenRequest(error: NodeJS.ErrnoException, socket: Duplex): void {
  const answers: Record<string, string> = {
    HPE_HEADER_OVERFLOW: rawProblem('invalid-request', 431, 'The address and headers of the request are too long.'),
    ERR_HTTP_REQUEST_TIMEOUT: rawProblem('invalid-request', 408, 'The request was not sent in time.'),
  };
  if (!socket.writable || error.code === 'ECONNRESET') return void socket.destroy();
  socket.end(answers[error.code ?? ''] ?? rawProblem('invalid-request', 400, 'This is not an HTTP request.'));
  // Whoever goes on sending would keep the connection.
  setTimeout(() => socket.destroy(), 1000).unref();
}

/** The application of the operator's port. */
function operatorApp(metrics: Metrics, healthRoutes: RequestHandler): RequestListener {
  metrics.collectDefaults();
  const app = express();
  app.disable('x-powered-by');
  app.use(healthRoutes);
  app.get('/metrics', async (_request, response) => {
    response.type(metrics.contentType).send(await metrics.text());
  });
  return app;
}

function urlOf(server: Server, host: string): string {
  const { port } = server.address() as AddressInfo;
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}
