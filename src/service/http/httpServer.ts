/** The HTTP server, with limits so that no client can delay the service or exhaust its memory. */
import { once } from 'node:events';
import { createServer, IncomingMessage, type Server, ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Express } from 'express';
import { type Config, publicPath } from '../../config/config.js';
import { codeOf } from '../../database/errors.js';
import { cut, escapeHidden } from '../../messages/shown.js';
import { UserError } from '../../userError.js';
import type { ProblemName } from '../problem/problem.js';
import { endSoon, MAX_KEPT_BYTES } from './connections.js';
import { rawProblem } from './problemResponse.js';
import { MAX_HEADERS } from './protocol.js';

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

/** A refusal of input that is not a request which the application can handle. */
interface Refusal {
  name: ProblemName;
  status: number;
  detail: string;
  /** Node's error, for the log. */
  reason?: string;
}

const NO_TARGET: Refusal = {
  name: 'invalid-request',
  status: 400,
  detail: 'The target of the request is not an address.',
};
const NO_CONNECT: Refusal = { name: 'method-not-allowed', status: 405, detail: 'CONNECT is not supported.' };

/**
 * Creates the HTTP server of an application that responds within REQUEST_TIMEOUT_SECONDS; it does not listen yet.
 * `logRefusal` is called with each response that is sent without the application, and returns the id of the request.
 */
export function createHttpServer(
  app: Express,
  config: Config,
  logRefusal: (status: number, reason?: string) => string,
): Server {
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
  // One more than protocolCheck allows. Node discards further ones.
  server.maxHeadersCount = MAX_HEADERS + 1;
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  /** The last response of each connection, until it is closed. */
  const lastResponses = new WeakMap<Duplex, ServerResponse>();
  /** Connections that have sent what is refused without the application; nothing after that is read. */
  const refused = new WeakSet<Duplex>();
  let waitingRequests = 0;

  /**
   * Handles the requests of a connection one after the other, so that it has at most one response in memory. A request
   * waits until Node has sent the previous responses and assigns the socket to its response; meanwhile, nothing is read.
   * A response emits `close` only if it was assigned the socket; a request always does.
   */
  function respondInOrder(request: IncomingMessage, response: ServerResponse) {
    const { socket } = request;
    lastResponses.set(socket, response);
    if (response.socket) return respond(request, response);
    // Not at once, because Node resumes the socket when it has parsed this request to its end.
    process.nextTick(() => socket.pause());
    response.once('socket', () => {
      // In the next turn of the event loop, so that requests that were sent ahead don't delay other connections.
      setImmediate(() => {
        if (socket.destroyed) return;
        if (lastResponses.get(socket) === response && !refused.has(socket)) socket.resume();
        respond(request, response);
      });
    });
    request.once('close', () => waitingRequests--);
    if (++waitingRequests > MAX_WAITING_REQUESTS && !socket.destroyed) {
      pauseOthersUntilClosed(socket);
      socket.destroy();
    }
  }

  /**
   * Reads no other connection until `socket`, which is about to be destroyed, is closed. Its requests are held until then, and
   * in the same turn of the event loop, Node would read and parse what thousands of other connections have sent.
   */
  function pauseOthersUntilClosed(socket: Duplex): void {
    const paused = [...sockets].filter((other) => other !== socket && !other.isPaused());
    for (const other of paused) other.pause();
    socket.once('close', () => {
      // A connection with requests that wait is resumed when they are handled.
      for (const other of paused) if (lastResponses.get(other)?.socket !== null) other.resume();
    });
  }

  function respond(request: IncomingMessage, response: ServerResponse) {
    const { socket } = request;
    const timeout = config.REQUEST_TIMEOUT_SECONDS * 1000 + RESPONSE_TIMEOUT_MS;
    const timer = setTimeout(() => response.socket?.destroy(), timeout);
    response.once('close', () => {
      clearTimeout(timer);
      if (lastResponses.get(socket) === response) lastResponses.delete(socket);
      // At a stop, a client would keep its connection open after the running request.
      if (!server.listening) server.closeIdleConnections();
    });
    if ((request.url ?? '').length > MAX_KEPT_BYTES) response.shouldKeepAlive = false;
    response.setHeader('X-Content-Type-Options', 'nosniff');
    handle(request, response, () => endWith(socket, NO_TARGET));
  }
  // Node would respond with a 417 without a body; an unknown expectation may be ignored (RFC 9110 section 10.1.1).
  server.on('checkExpectation', (request, response) => server.emit('request', request, response));
  server.on('connect', (_request, socket) => refuse(socket, NO_CONNECT));
  server.on('clientError', (error, socket) => refuse(socket, refusalOf(error)));

  /** Refuses what a connection has sent, once earlier requests have their responses, and closes the connection. */
  function refuse(socket: Duplex, refusal: Refusal): void {
    // Node emits an error for each further piece of what it can't parse.
    if (refused.has(socket)) return;
    refused.add(socket);
    const last = lastResponses.get(socket);
    if (!last) {
      endWith(socket, refusal);
    } else {
      socket.pause();
      last.once('close', () => endWith(socket, refusal));
    }
  }

  /** Ends a connection with a problem, and cuts off a client that keeps sending. */
  function endWith(socket: Duplex, { name, status, detail, reason }: Refusal): void {
    if (!socket.writable) return;
    socket.write(rawProblem(path, name, status, detail, logRefusal(status, reason)));
    endSoon(socket);
  }
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

/** Returns the refusal of input that is too broken, too large or too slow to be a request. */
function refusalOf({ code = '', message }: NodeJS.ErrnoException): Refusal {
  const [status, detail] = PARSER_FAULTS[code] ?? [400, 'This is not an HTTP request.'];
  return { name: 'invalid-request', status, detail, reason: message };
}
