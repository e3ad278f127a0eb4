/** The HTTP server, with limits so that no client can delay the service or exhaust its memory. */
import { once } from 'node:events';
import { createServer, IncomingMessage, type Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Express } from 'express';
import { type Config, publicPath } from '../../config/config.js';
import { codeOf } from '../../database/errors.js';
import { cut, escapeHidden } from '../../messages/shown.js';
import { UserError } from '../../userError.js';
import { rawProblem } from './problemResponse.js';

/** The most bytes of a request line and its headers: enough for 50 long values of each name filter. */
const MAX_HEADER_BYTES = 128 * 1024;
/** The time limits for a client to send its headers, to send a whole request, and to receive the response. */
const HEADERS_TIMEOUT_MS = 10_000;
const REQUEST_TIMEOUT_MS = 15_000;
const RESPONSE_TIMEOUT_MS = 15_000;
/** At a stop, requests that are still running this long after their time limit are cut off. */
const FINISH_MARGIN_MS = 500;
/** The most requests, over all connections, that wait for earlier requests of their connection; each takes some 2 KB. */
const MAX_WAITING_REQUESTS = 10_000;

const NO_TARGET = 'The target of the request is not an address.';

/** Creates the HTTP server of an application that responds within REQUEST_TIMEOUT_SECONDS; it does not listen yet. */
export function createHttpServer(app: Express, config: Config): Server {
  const path = publicPath(config);
  // Express calls `noPath` for a request target without a path; no handler sees that request.
  const handle = app as unknown as (request: IncomingMessage, response: ServerResponse, noPath: () => void) => void;
  const server = createServer(
    {
      ...messageClassesOf(app),
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: HEADERS_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      keepAliveTimeout: config.KEEP_ALIVE_SECONDS * 1000,
      connectionsCheckingInterval: 1000,
      // protocolCheck rejects requests without a Host header with a problem.
      requireHostHeader: false,
    },
    respondInOrder,
  );
  // A client that closes its sending side still gets its responses; Node closes the connection after the last one.
  Object.assign(server, { httpAllowHalfOpen: true });
  const lastResponses = new WeakMap<Duplex, ServerResponse>();
  let waitingRequests = 0;
  // A connection's requests are handled one after the other, so that it has at most one response in memory. Node assigns
  // the socket to a response once the previous ones are sent. A response emits `close` only if it was assigned the
  // socket; a request always does.
  function respondInOrder(request: IncomingMessage, response: ServerResponse) {
    const { socket } = request;
    lastResponses.set(socket, response);
    if (response.socket) return respond(request, response);
    let isWaiting = true;
    // Not at once, because Node resumes the socket when it has parsed this request to its end.
    process.nextTick(() => isWaiting && socket.pause());
    response.once('socket', () => {
      isWaiting = false;
      if (lastResponses.get(socket) === response) socket.resume();
      respond(request, response);
    });
    request.once('close', () => waitingRequests--);
    if (++waitingRequests > MAX_WAITING_REQUESTS) socket.destroy();
  }
  function respond(request: IncomingMessage, response: ServerResponse) {
    const timeout = config.REQUEST_TIMEOUT_SECONDS * 1000 + RESPONSE_TIMEOUT_MS;
    const timer = setTimeout(() => response.socket?.destroy(), timeout);
    response.once('close', () => {
      clearTimeout(timer);
      // At a stop, a client would keep its connection open after the running request.
      if (!server.listening) server.closeIdleConnections();
    });
    response.setHeader('X-Content-Type-Options', 'nosniff');
    handle(request, response, () => endWith(request.socket, rawProblem(path, 'invalid-request', 400, NO_TARGET)));
  }
  // Node would respond with a 417 without a body; an unknown expectation may be ignored (RFC 9110 section 10.1.1).
  server.on('checkExpectation', (request, response) => server.emit('request', request, response));
  server.on('connect', (_request, socket) =>
    endWith(socket, rawProblem(path, 'method-not-allowed', 405, 'CONNECT is not supported.')),
  );
  server.on('clientError', (error, socket) => {
    // Earlier requests get their responses first.
    const last = lastResponses.get(socket);
    if (!last || last.closed || socket.destroyed) rejectBrokenRequest(error, socket, path);
    else last.once('close', () => socket.writable && rejectBrokenRequest(error, socket, path));
  });
  return server;
}

/**
 * Listens at the host and port that the named settings give.
 * @throws {UserError} if the address or the port can't be used
 */
export async function listen(
  server: Server,
  config: Config,
  [host, port]: ['HOST', 'PORT'] | ['METRICS_HOST', 'METRICS_PORT'],
) {
  const address = `${port} ${config[port]} of ${config[host]}`;
  server.listen(config[port], config[host]);
  try {
    await once(server, 'listening');
  } catch (error) {
    const code = codeOf(error);
    if (code === 'EADDRINUSE') throw new UserError(`${address} is already in use; choose another`);
    if (code === 'EACCES') throw new UserError(`${address} needs more privileges; choose another`);
    if (['EADDRNOTAVAIL', 'ENOTFOUND', 'EAI_AGAIN', 'EINVAL'].includes(code)) {
      throw new UserError(`${host} ${cut(escapeHidden(config[host]))} is not an address of this machine`);
    }
    throw error;
  }
}

/** Stops accepting connections and waits for the running requests, which get their responses within `responseMs`. */
export async function finish(server: Server, responseMs: number): Promise<void> {
  const closed = once(server, 'close');
  server.close();
  const timer = setTimeout(() => server.closeAllConnections(), responseMs + FINISH_MARGIN_MS);
  await closed;
  clearTimeout(timer);
}

/** Returns the URL of a server that listens at `host`, such as `http://127.0.0.1:3000`. */
export function urlOf(server: Server, host: string): string {
  const { port } = server.address() as AddressInfo;
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

/**
 * Returns classes of requests and responses that have the application's methods from the start. Express would change the
 * prototype of each object, which makes V8 run all code that uses it slowly: more than a third of a request's time.
 */
function messageClassesOf(app: Express) {
  class AppRequest extends IncomingMessage {}
  class AppResponse extends ServerResponse {}
  app.request = Object.setPrototypeOf(AppRequest.prototype, app.request);
  app.response = Object.setPrototypeOf(AppResponse.prototype, app.response);
  return { IncomingMessage: AppRequest, ServerResponse: AppResponse };
}

/** The status and the detail of the problem, by the code of Node's error. */
const PARSER_FAULTS: Record<string, [number, string]> = {
  HPE_HEADER_OVERFLOW: [431, 'The address and headers of the request are too long.'],
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'The request was not received in time.'],
};

/** Sends a problem for input that is too broken, too large or too slow to be a request. */
function rejectBrokenRequest(error: NodeJS.ErrnoException, socket: Duplex, path: string): void {
  const [status, detail] = PARSER_FAULTS[error.code ?? ''] ?? [400, 'This is not an HTTP request.'];
  endWith(socket, rawProblem(path, 'invalid-request', status, detail));
}

/** Ends a connection with a response, and cuts off a client that keeps sending. */
function endWith(socket: Duplex, response: string): void {
  socket.on('error', () => {});
  socket.end(response);
  setTimeout(() => socket.destroy(), 1000).unref();
}
