/** The HTTP server, with limits so that no client can delay the service or exhaust its memory. */
import { once } from 'node:events';
import { createServer, IncomingMessage, type Server, ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Express } from 'express';
import { type Config, publicPath } from '../../config/config.js';
import { cut, escapeHidden } from '../../messages/shown.js';
import { UserError } from '../../userError.js';
import { Connections, endSoon } from './connections.js';
import { rawProblem } from './problemResponse.js';
import { MAX_HEADERS } from './protocol.js';

/** The time limits for a client to send its headers, to send a whole request, and to receive the response. */
const HEADERS_TIMEOUT_MS = 10_000;
const REQUEST_TIMEOUT_MS = 15_000;
const RESPONSE_TIMEOUT_MS = 15_000;
/** At a stop, requests that are still running this long after their time limit are cut off. */
const FINISH_MARGIN_MS = 500;

/** The problem's status and detail for what is not a request which the application can handle. */
type Refusal = [status: number, detail: string];
const NO_TARGET: Refusal = [400, 'The target of the request is not an address.'];
const NO_REQUEST: Refusal = [400, 'This is not an HTTP request.'];
/** The refusals of input that is too large or too slow, by the code of Node's error. */
const REFUSALS: Record<string, Refusal> = {
  HPE_HEADER_OVERFLOW: [431, 'The request has more than 16 KB of address and headers, or more than 100 headers.'],
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'The request was not received in time.'],
};

interface Listeners {
  /** Is called with each response that is sent without the application; returns the id of the request. */
  logRefusal(status: number, reason?: string): string;
  /** Is called with the number of connections that were cut off, and with their bytes. */
  onCutOff(count: number, bytes: number): void;
}

/** Creates the HTTP server of an application that responds within REQUEST_TIMEOUT_SECONDS; it does not listen yet. */
export function createHttpServer(app: Express, config: Config, { logRefusal, onCutOff }: Listeners) {
  // Express calls `noPath` for a request target without a path; no handler sees that request.
  const handle = app as unknown as (request: IncomingMessage, response: ServerResponse, noPath: () => void) => void;
  const server = createServer(
    {
      ...messageClassesOf(app, (socket) => connections.hasTooMany(socket)),
      headersTimeout: HEADERS_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      keepAliveTimeout: config.KEEP_ALIVE_SECONDS * 1000,
      connectionsCheckingInterval: 1000,
      // protocolCheck rejects requests without a Host header with a problem.
      requireHostHeader: false,
    },
    (request, response) => connections.begin(request.socket, response) && respond(request, response),
  );
  // A client that closes its sending side still gets its responses; Node closes the connection after the last one.
  Object.assign(server, { httpAllowHalfOpen: true });
  // One more than protocolCheck allows. Node discards further ones.
  server.maxHeadersCount = MAX_HEADERS + 1;
  const connections = new Connections(server, config.MAX_CONNECTIONS, onCutOff);
  // Node's own, called by `close`, cuts off responses that are sent only in part.
  server.closeIdleConnections = () => connections.closeIdle();

  function respond(request: IncomingMessage, response: ServerResponse) {
    const timeout = config.REQUEST_TIMEOUT_SECONDS * 1000 + RESPONSE_TIMEOUT_MS;
    const timer = setTimeout(() => response.socket?.destroy(), timeout);
    response.once('close', () => clearTimeout(timer));
    response.setHeader('X-Content-Type-Options', 'nosniff');
    handle(request, response, () => endWith(request.socket, NO_TARGET));
  }
  // Node would respond with a 417 without a body; an unknown expectation may be ignored (RFC 9110 section 10.1.1).
  server.on('checkExpectation', (request, response) => server.emit('request', request, response));
  // Node emits an error for each further piece of what it can't parse.
  server.on('clientError', ({ code = '', message }: NodeJS.ErrnoException, duplex) => {
    const socket = duplex as Socket;
    connections.endWhenIdle(socket, () => endWith(socket, REFUSALS[code] ?? NO_REQUEST, message));
  });

  /** Ends a connection with a problem, and cuts off a client that keeps sending. `reason` is Node's error, for the log. */
  function endWith(socket: Socket, [status, detail]: Refusal, reason?: string): void {
    if (!socket.writable) return;
    socket.write(rawProblem(publicPath(config), status, detail, logRefusal(status, reason)));
    endSoon(socket);
  }

  /** Stops accepting connections, waits for the running requests, and then cuts off what is left. */
  async function finish(): Promise<void> {
    const closed = once(server, 'close');
    server.close();
    const timeout = config.REQUEST_TIMEOUT_SECONDS * 1000 + FINISH_MARGIN_MS;
    const timer = setTimeout(() => connections.destroyAll(), timeout);
    await closed;
    clearTimeout(timer);
  }
  return { server, finish };
}

/** Listens at the host and port that the named settings give. Rejects with a UserError if these can't be used. */
export async function listen(
  server: Server,
  config: Config,
  [host, port]: ['HOST', 'PORT'] | ['METRICS_HOST', 'METRICS_PORT'],
) {
  server.listen(config[port], config[host]);
  try {
    await once(server, 'listening');
  } catch (error) {
    throw new UserError(`${cut(escapeHidden((error as Error).message))}; choose another ${port} or ${host}`);
  }
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
function messageClassesOf(app: Express, hasTooMany: (socket: Socket) => boolean) {
  class AppRequest extends IncomingMessage {
    /**
     * Closes the connection if it has too many requests. Node would still parse all that has arrived, and keep each request until
     * the event loop has read from all connections. It stops parsing at an upgrade.
     */
    constructor(socket: Socket) {
      super(socket);
      if (!hasTooMany(socket)) return;
      socket.destroy();
      Object.defineProperty(this, 'upgrade', { get: () => true, set() {} });
    }
  }
  class AppResponse extends ServerResponse {
    /** Ends the response once its body is sent. Node 22 would send an empty piece after it, and may read the next request first. */
    override end(body?: unknown, encoding?: unknown): this {
      if (!body) return super.end();
      this.write(body, encoding as BufferEncoding, () => super.end());
      return this;
    }
  }
  app.request = Object.setPrototypeOf(AppRequest.prototype, app.request);
  app.response = Object.setPrototypeOf(AppResponse.prototype, app.response);
  return { IncomingMessage: AppRequest, ServerResponse: AppResponse };
}
