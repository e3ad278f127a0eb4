/** The running service: opens what the application needs, listens, and closes all of it in order. */
import { once } from 'node:events';
import { createServer, IncomingMessage, type RequestListener, type Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import express, { type Express, type RequestHandler } from 'express';
import { createApp } from './app.js';
import { type Config, ConfigError } from './config.js';
import { boundConnections } from './connections.js';
import { closeDatabase, type Database, openDatabase } from './database/connect.js';
import { codeOf } from './database/errors.js';
import { Reader } from './database/reads.js';
import { ReplicaLag } from './database/replicaLag.js';
import { health } from './health.js';
import type { Log } from './log.js';
import { createMetrics, type Metrics } from './metrics.js';
import { rawProblem } from './problem/problem.js';
import { createRateLimit } from './rateLimit/rateLimit.js';
import { warmUpValidator } from './request/validation.js';

/** Bytes of a request's line and headers: enough for 50 long values of each name filter. */
const MAX_HEADER_BYTES = 128 * 1024;
/** How long a client may take to send its headers, to send a whole request, and to receive a whole answer. */
const HEADERS_TIMEOUT_MS = 10_000;
const RECEIVE_TIMEOUT_MS = 15_000;
const ANSWER_TIMEOUT_MS = 20_000;
/** How long an idle connection is kept: longer than balancers keep theirs, so that the balancer closes it. */
const IDLE_TIMEOUT_MS = 75_000;
/** At a stop, the time for running requests, and for the connections to the database, before they are cut. */
const FINISH_TIMEOUT_MS = 5500;
const CLOSE_TIMEOUT_MS = 1000;
/** PostgreSQL cancels a statement this long before the request's time is over, so that its error arrives in time. */
const STATEMENT_MARGIN_MS = 1000;

export interface Service {
  /** Where it listens, such as `http://127.0.0.1:3000`. */
  url: string;
  /** Where its metrics are, if METRICS_PORT is set. */
  metricsUrl?: string;
  /**
   * Stops gracefully: becomes unready at once, goes on serving for `delay` seconds, then finishes the running requests,
   * in 7 s at most. Once `hurry` is aborted, it waits for neither.
   */
  close(delay?: number, hurry?: AbortSignal): Promise<void>;
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
  const metrics = createMetrics(config.MAX_REQUESTS_IN_FLIGHT);
  const database = openDatabase(databaseUrl, {
    connections: config.DATABASE_CONNECTIONS,
    statementTimeout: Math.max(500, config.REQUEST_TIMEOUT_SECONDS * 1000 - STATEMENT_MARGIN_MS),
    onFailover() {
      metrics.failedOver();
      log.warn('the connections to the database were replaced by new ones');
    },
  });
  const reader = new Reader(database, log, metrics);
  const rateLimit = createRateLimit(config, databaseUrl, log, metrics);
  let stopping = false;
  const isStopping = () => stopping;
  const replicaLag = new ReplicaLag(database, reader, config.MAX_REPLICA_LAG_SECONDS, log, metrics);
  const replicaTrouble = () => replicaLag.trouble();
  const server = createHttpServer(
    createApp({ config, database, reader, rateLimit, log, metrics, isStopping, replicaTrouble }),
  );
  const endWatch = boundConnections(server, config, log);
  return {
    server,
    database,
    operatorServer: createServer(operatorApp(metrics, health(database, reader, isStopping, replicaTrouble))),
    async warmUp() {
      await warmUpValidator();
      await Promise.all([rateLimit.warmUp(), replicaLag.takeSample()]);
    },
    beginStop() {
      stopping = true;
    },
    async close() {
      endWatch();
      replicaLag.close();
      await rateLimit.close();
      reader.close();
      await closeDatabase(database, CLOSE_TIMEOUT_MS / 1000);
    },
  };
}

/** Starts the service on a migrated database. */
export async function startService(config: Config, databaseUrl: string, log: Log): Promise<Service> {
  const { server, operatorServer, warmUp, beginStop, close } = openService(config, databaseUrl, log);
  const { HOST, METRICS_HOST, METRICS_PORT } = config;
  try {
    await warmUp();
    await listen(server, config, ['HOST', 'PORT']);
    if (METRICS_PORT !== undefined) await listen(operatorServer, config, ['METRICS_HOST', 'METRICS_PORT']);
  } catch (error) {
    server.close();
    await close();
    throw error;
  }
  return {
    url: urlOf(server, HOST),
    ...(METRICS_PORT === undefined ? {} : { metricsUrl: urlOf(operatorServer, METRICS_HOST) }),
    async close(delay = 0, hurry = new AbortController().signal) {
      beginStop();
      await sleep(delay * 1000, undefined, { signal: hurry }).catch(() => {});
      await finish(server, hurry);
      operatorServer.close();
      operatorServer.closeAllConnections();
      await close();
    },
  };
}

const NO_TARGET = 'The target of the request is not an address.';

/** Takes no more connections and waits for the running requests, within their limit. */
async function finish(server: Server, hurry: AbortSignal): Promise<void> {
  const closed = once(server, 'close');
  server.close();
  server.closeIdleConnections();
  const cut = () => server.closeAllConnections();
  const late = setTimeout(cut, FINISH_TIMEOUT_MS);
  hurry.addEventListener('abort', cut);
  if (hurry.aborted) cut();
  await closed;
  clearTimeout(late);
}

/** Listens at the host and port of the settings with these names. */
async function listen(
  server: Server,
  config: Config,
  [host, port]: ['HOST', 'PORT'] | ['METRICS_HOST', 'METRICS_PORT'],
) {
  const place = `${port} ${config[port]} of ${config[host]}`;
  server.listen(config[port], config[host]);
  try {
    await once(server, 'listening');
  } catch (error) {
    const code = codeOf(error);
    if (code === 'EADDRINUSE') throw new ConfigError(`${place} is taken; choose another`);
    if (code === 'EACCES') throw new ConfigError(`${place} needs more privileges; choose another`);
    if (['EADDRNOTAVAIL', 'ENOTFOUND', 'EAI_AGAIN', 'EINVAL'].includes(code)) {
      throw new ConfigError(`${host} ${config[host]} is not an address of this machine`);
    }
    throw error;
  }
}

/** The HTTP server of the application, not yet listening; no client can hold it up or fill its memory. */
function createHttpServer(app: Express): Server {
  // Express calls the last one where it finds no path in the target; no handler sees such a request.
  const handle = app as unknown as (request: IncomingMessage, response: ServerResponse, noPath: () => void) => void;
  const server = createServer(
    {
      ...messagesOf(app),
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: HEADERS_TIMEOUT_MS,
      requestTimeout: RECEIVE_TIMEOUT_MS,
      keepAliveTimeout: IDLE_TIMEOUT_MS,
      connectionsCheckingInterval: 1000,
      // protocolCheck answers requests without a Host header with a problem.
      requireHostHeader: false,
    },
    answer,
  );
  function answer(request: IncomingMessage, response: ServerResponse) {
    const late = setTimeout(() => response.socket?.destroy(), ANSWER_TIMEOUT_MS);
    response.once('close', () => {
      clearTimeout(late);
      // At a stop, the client may keep the connection whose request was running.
      if (!server.listening) server.closeIdleConnections();
    });
    response.setHeader('X-Content-Type-Options', 'nosniff');
    handle(request, response, () => refuseRaw(request.socket, rawProblem('invalid-request', 400, NO_TARGET)));
  }
  // Node would silently drop headers above its limit, and the last header is the one that a proxy has added.
  // protocolCheck refuses such requests; until then MAX_HEADER_BYTES bounds them.
  server.maxHeadersCount = 0;
  server.on('checkExpectation', answer);
  server.on('connect', (_request, socket) =>
    refuseRaw(socket, rawProblem('method-not-allowed', 405, 'This service is no proxy.')),
  );
  server.on('clientError', answerBrokenRequest);
  return server;
}

/**
 * Classes of requests and responses that are created with the application's methods. Express would change the prototype
 * of each one, after which V8 runs all code that touches them slowly: more than a third of a request's time.
 */
function messagesOf(app: Express) {
  class AppRequest extends IncomingMessage {}
  class AppResponse extends ServerResponse {}
  app.request = Object.setPrototypeOf(AppRequest.prototype, app.request);
  app.response = Object.setPrototypeOf(AppResponse.prototype, app.response);
  return { IncomingMessage: AppRequest, ServerResponse: AppResponse };
}

/** Answers with a problem even what is too broken, too large or too slow to be a request. */
function answerBrokenRequest(error: NodeJS.ErrnoException, socket: Duplex): void {
  const answers: Record<string, string> = {
    HPE_HEADER_OVERFLOW: rawProblem('invalid-request', 431, 'The address and headers of the request are too long.'),
    ERR_HTTP_REQUEST_TIMEOUT: rawProblem('invalid-request', 408, 'The request was not sent in time.'),
  };
  if (!socket.writable || error.code === 'ECONNRESET') return void socket.destroy();
  refuseRaw(socket, answers[error.code ?? ''] ?? rawProblem('invalid-request', 400, 'This is not an HTTP request.'));
}

/** Ends a connection with an answer; a client that goes on sending is cut off. */
function refuseRaw(socket: Duplex, answer: string): void {
  socket.on('error', () => {});
  socket.end(answer);
  setTimeout(() => socket.destroy(), 1000).unref();
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

function urlOf(server: Server, host: string): string {
  const { port } = server.address() as AddressInfo;
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}
