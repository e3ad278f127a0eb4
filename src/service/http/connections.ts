/**
 * The connections of clients: their number, one request at a time on each, and the unread responses that are held for them.
 *
 * # Number
 *
 * Beyond the limit, a new connection closes the one that has been idle longest, or is closed itself. Node's `maxConnections`
 * always closes the new one, so that idle connections could shut out new clients.
 *
 * # One request at a time
 *
 * A request that arrives before the previous response has been sent (pipelining) is not handled: the connection ends after that
 * response, and the client sends the request again (RFC 9112 section 9.3.2). A third one ends it at once, so requests can't pile up.
 *
 * # Memory
 *
 * Unread responses are summed up for all connections; above MAX_HELD_BYTES, those that have waited longest are cut off. A
 * constant body is in memory once, however many clients read it.
 */
import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** How long a connection must have been idle to be closed for a new one; before that, a request may be on its way. */
const IDLE_GRACE_MS = 1000;
/** The most bytes of unread responses of all connections. The sizing in docs/operations.md includes them. */
const MAX_HELD_BYTES = 64 * 2 ** 20;
/** The interval at which they are summed up. For 2,000 connections, that takes a third of a millisecond. */
const CHECK_INTERVAL_MS = 100;
const LINGER_MS = 1000;

interface Connection {
  /** Whether it has had no request yet, has one in progress, or waits for the next one. */
  state: 'new' | 'busy' | 'idle';
  /** When `state` last changed, in milliseconds of `performance.now()`. */
  changedAt: number;
  end?: () => void;
}

/** Sockets that are being sent a constant body. */
const sharing = new WeakSet<Socket>();

/** Excludes the body of a response, which all clients share, from what is held for its connection. */
export function shareBody(response: ServerResponse): void {
  const { socket } = response;
  if (!socket) return;
  sharing.add(socket);
  response.once('close', () => sharing.delete(socket));
}

export class Connections {
  /** In the order of `changedAt`: the first idle one has been idle longest. */
  readonly #all = new Map<Socket, Connection>();
  readonly #server: Server;
  readonly #max: number;
  readonly #onCutOff: (count: number, bytes: number) => void;

  /** Keeps `server` at `max` connections, and the bytes that it holds for them at MAX_HELD_BYTES. */
  constructor(server: Server, max: number, onCutOff: (count: number, bytes: number) => void) {
    this.#server = server;
    this.#max = max;
    this.#onCutOff = onCutOff;
    const timer = setInterval(() => this.#check(), CHECK_INTERVAL_MS).unref();
    server.once('close', () => clearInterval(timer));
    server.on('connection', (socket: Socket) => this.#add(socket));
  }

  #add(socket: Socket): void {
    this.#all.set(socket, { state: 'new', changedAt: performance.now() });
    // Node removes its own listener from a socket that it gives away.
    socket.on('error', () => {});
    socket.once('close', () => this.#all.delete(socket));
    if (this.#all.size > this.#max) (this.#longestIdle() ?? socket).destroy();
  }

  /** Begins a request. Returns false if it arrived too early to be handled, so that its connection ends. */
  begin(socket: Socket, response: ServerResponse): boolean {
    // Node gives the socket to a response once the previous one has been passed to the system.
    if (!response.socket) {
      this.endWhenIdle(socket, () => endSoon(socket));
      return false;
    }
    this.#setState(socket, 'busy');
    response.once('close', () => this.#setState(socket, 'idle'));
    return true;
  }

  /** Returns whether a connection that is to end after its current response has got another request. */
  hasTooMany(socket: Socket): boolean {
    const { state, end } = this.#all.get(socket) ?? {};
    return state === 'busy' && end !== undefined;
  }

  #setState(socket: Socket, state: 'busy' | 'idle'): void {
    const connection = this.#all.get(socket);
    if (!connection) return;
    this.#all.delete(socket);
    this.#all.set(socket, Object.assign(connection, { state, changedAt: performance.now() }));
    if (state === 'busy') return;
    if (connection.end) connection.end();
    // At a stop, a client would keep its connection open.
    else if (!this.#server.listening) socket.destroy();
  }

  /** Ends a connection by calling `end` once it has no request in progress. Does nothing if called again. */
  endWhenIdle(socket: Socket, end: () => void): void {
    const connection = this.#all.get(socket);
    if (!connection || connection.end) return;
    connection.end = end;
    // Meanwhile, bytes that are not HTTP are not read.
    if (connection.state === 'busy') socket.pause();
    else end();
  }

  #longestIdle(): Socket | undefined {
    for (const [socket, { state, changedAt }] of this.#all) {
      if (state === 'busy') continue;
      return performance.now() - changedAt >= IDLE_GRACE_MS ? socket : undefined;
    }
    return undefined;
  }

  #check(): void {
    const sockets = [...this.#all.keys()];
    const held = sockets.reduce((sum, socket) => sum + heldBytes(socket), 0);
    let rest = held;
    let count = 0;
    for (const socket of sockets) {
      if (rest <= MAX_HELD_BYTES) break;
      const bytes = heldBytes(socket);
      // A connection within its share of the limit is spared.
      if (bytes <= MAX_HELD_BYTES / this.#max) continue;
      socket.destroy();
      rest -= bytes;
      count++;
    }
    if (count > 0) this.#onCutOff(count, held - rest);
  }

  /** Closes connections that were sent a response, and have no request in progress. */
  closeIdle(): void {
    for (const [socket, { state }] of this.#all) if (state === 'idle') socket.destroy();
  }

  /** Cuts off all connections, also those that Node's server no longer knows. */
  destroyAll(): void {
    for (const socket of this.#all.keys()) socket.destroy();
  }
}

const heldBytes = (socket: Socket) => (sharing.has(socket) ? 0 : socket.writableLength);

/**
 * Ends a connection after what was written to it. What the client still sends is read for LINGER_MS; otherwise the system
 * would reset the connection, and the client could lose the response.
 */
export function endSoon(socket: Socket): void {
  socket.end();
  socket.resume();
  setTimeout(() => socket.destroy(), LINGER_MS).unref();
}
