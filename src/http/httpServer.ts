/** The HTTP server: what HTTP itself needs, so that no client can hold the service up or fill its memory. */
import { once } from 'node:events';
import { createServer, IncomingMessage, type Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Express } from 'express';
import { type Config, publicPath } from '../config.js';
import { codeOf } from '../database/errors.js';
import { abridged } from '../messages/shorten.js';
import { rawProblem } from '../problem/problem.js';
import { UserError } from '../userError.js';

/** Bytes of a request's line and headers: enough for 50 long values of each name filter. */
const MAX_HEADER_BYTES = 128 * 1024;
/** How long a client may take to send its headers, to send a whole request, and to receive the answer that is made for it. */
const HEADERS_TIMEOUT_MS = 10_000;
const RECEIVE_TIMEOUT_MS = 15_000;
const TAKE_TIMEOUT_MS = 15_000;
/** At a stop, the time for running requests before they are cut, beside that in which they are answered. */
const FINISH_MARGIN_MS = 500;
/** Requests that wait for earlier ones of their connection, over all connections: some 2 KB each. */
const MAX_WAITING_REQUESTS = 10_000;

const NO_TARGET = 'The target of the request is not an address.';

/** Creates the HTTP server of an application that responds within REQUEST_TIMEOUT_SECONDS; it does not listen yet. */
export function createHttpServer(app: Express, config: Config): Server {
  const path = publicPath(config);
  // Express calls the last one for a target without a path; no handler sees that request.
  const handle = app as unknown as (request: IncomingMessage, response: ServerResponse, noPath: () => void) => void;
  const server = createServer(
    {
      ...messagesOf(app),
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: HEADERS_TIMEOUT_MS,
      requestTimeout: RECEIVE_TIMEOUT_MS,
      keepAliveTimeout: config.KEEP_ALIVE_SECONDS * 1000,
      connectionsCheckingInterval: 1000,
      // protocolCheck answers requests without a Host header with a problem.
      requireHostHeader: false,
    },
    answerInTurn,
  );
  // A client that has sent all that it will send still gets its answers; Node closes the connection after the last one.
  Object.assign(server, { httpAllowHalfOpen: true });
  const lastOf = new WeakMap<Duplex, ServerResponse>();
  let waiting = 0;
  // A connection's requests are answered one after the other, so that each connection has at most one answer in memory.
  // Node gives a response the socket once those before it are sent, and from then on it is sure to be closed. One that
  // still waits when the connection ends is never closed; its request is.
  function answerInTurn(request: IncomingMessage, response: ServerResponse) {
    const { socket } = request;
    // What was read together is parsed to its end.
    if (socket.destroyed) return;
    lastOf.set(socket, response);
    if (response.socket) return answer(request, response);
    socket.pause();
    response.once('socket', () => {
      if (lastOf.get(socket) === response) socket.resume();
      answer(request, response);
    });
    request.once('close', () => waiting--);
    if (++waiting > MAX_WAITING_REQUESTS) socket.destroy();
  }
  function answer(request: IncomingMessage, response: ServerResponse) {
    const late = setTimeout(() => response.socket?.destroy(), config.REQUEST_TIMEOUT_SECONDS * 1000 + TAKE_TIMEOUT_MS);
    response.once('close', () => {
      clearTimeout(late);
      // At a stop, the client may keep the connection whose request was running.
      if (!server.listening) server.closeIdleConnections();
    });
    response.setHeader('X-Content-Type-Options', 'nosniff');
    handle(request, response, () => refuseRaw(request.socket, rawProblem(path, 'invalid-request', 400, NO_TARGET)));
  }
  // Node would silently drop headers above its limit, and the last header is the one that a proxy has added.
  // protocolCheck refuses such requests; until then MAX_HEADER_BYTES bounds them.
  server.maxHeadersCount = 0;
  // Node would respond with a 417 that has no body; an unknown expectation may be ignored (RFC 9110 section 10.1.1).
  server.on('checkExpectation', (request, response) => server.emit('request', request, response));
  server.on('connect', (_request, socket) =>
    refuseRaw(socket, rawProblem(path, 'method-not-allowed', 405, 'This service is no proxy.')),
  );
  const broken = new WeakSet<Duplex>();
  server.on('clientError', (error, socket) => {
    // What follows is broken, too.
    if (broken.has(socket)) return;
    broken.add(socket);
    // Requests before it are answered first.
    const last = lastOf.get(socket);
    if (!last || last.closed || socket.destroyed) answerBrokenRequest(error, socket, path);
    else last.once('close', () => socket.writable && answerBrokenRequest(error, socket, path));
  });
  return server;
}

/** Listens at the host and port of the settings with these names. @throws {UserError} where it can't */
export async function listen(
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
    if (code === 'EADDRINUSE') throw new UserError(`${place} is taken; choose another`);
    if (code === 'EACCES') throw new UserError(`${place} needs more privileges; choose another`);
    if (['EADDRNOTAVAIL', 'ENOTFOUND', 'EAI_AGAIN', 'EINVAL'].includes(code)) {
      throw new UserError(`${host} ${abridged(config[host])} is not an address of this machine`);
    }
    throw error;
  }
}

/** Stops taking connections and waits for the running requests, which are answered within `answerMs`. */
export async function finish(server: Server, answerMs: number): Promise<void> {
  const closed = once(server, 'close');
  server.close();
  server.closeIdleConnections();
  const late = setTimeout(() => server.closeAllConnections(), answerMs + FINISH_MARGIN_MS);
  await closed;
  clearTimeout(late);
}

/** The URL of a server that listens at `host`, such as `http://127.0.0.1:3000`. */
export function urlOf(server: Server, host: string): string {
  const { port } = server.address() as AddressInfo;
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
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

/** Answers with a problem even to input that is too broken, too large or too slow to be a request. */
function answerBrokenRequest(error: NodeJS.ErrnoException, socket: Duplex, path: string): void {
  const answers: Record<string, string> = {
    HPE_HEADER_OVERFLOW: rawProblem(
      path,
      'invalid-request',
      431,
      'The address and headers of the request are too long.',
    ),
    ERR_HTTP_REQUEST_TIMEOUT: rawProblem(path, 'invalid-request', 408, 'The request was not sent in time.'),
  };
  if (!socket.writable || error.code === 'ECONNRESET') return void socket.destroy();
  refuseRaw(
    socket,
    answers[error.code ?? ''] ?? rawProblem(path, 'invalid-request', 400, 'This is not an HTTP request.'),
  );
}

/** Ends a connection with an answer; a client that goes on sending is cut off. */
function refuseRaw(socket: Duplex, answer: string): void {
  socket.on('error', () => {});
  socket.end(answer);
  setTimeout(() => socket.destroy(), 1000).unref();
}
