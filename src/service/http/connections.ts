/**
 * The connections of clients: their number, their requests, and what is held for them. All that is counted for a connection is
 * given back when its socket closes. Node's events of requests do not suffice: after CONNECT, it emits none for those that wait.
 *
 * # Number
 *
 * Beyond the limit, a new connection closes the one that has been idle longest, or is closed itself. Node's `maxConnections`
 * always closes the new one, so that idle connections could shut out new clients.
 *
 * # Memory
 *
 * Clients decide how long their headers and their unread responses stay in memory. These are summed up for all connections;
 * above MAX_HELD_BYTES, those that have waited longest are cut off. Nothing is held for an idle connection, and a constant body
 * is in memory once, however many clients are reading it.
 */
import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** How long a connection must have been idle to be closed for a new one; before that, a request may be on its way. */
const IDLE_GRACE_MS = 1000;
/** The most bytes of headers and unread responses of all connections. The sizing in docs/operations.md includes them. */
const MAX_HELD_BYTES = 64 * 2 ** 20;
/** The interval at which they are summed up. For 2,000 connections, that takes a third of a millisecond. */
const CHECK_INTERVAL_MS = 100;
/** The most received bytes that are held for a connection: the longest headers, and what was read together with their end. */
const MAX_RECEIVED_BYTES = 192 * 1024;
/**
 * A connection is closed after a request of more than this, and once it is idle if it has received more before: Node's parser
 * keeps long headers until the next request, of which it may have the beginning already.
 */
const MAX_KEPT_BYTES = 16 * 1024;
/** The most requests that wait for earlier requests of their connection; each takes 2 KB, and 15 KB with 98 headers. */
const MAX_WAITING_REQUESTS = 10_000;
/** How long a connection that was ended is read, in milliseconds. */
const LINGER_MS = 1000;

interface Connection {
  /** Requests in progress, including those with a response that has not been passed to the system yet. */
  requests: number;
  /** The requests that wait for earlier ones. */
  waiting: number;
  /** When `requests` last changed, in milliseconds of `performance.now()`. */
  changedAt: number;
  /** The bytes that the socket had received when it was last idle, if nothing of them is held. */
  receivedBefore: number;
  /** False if it is to be closed once it is idle. */
  isKept: boolean;
  /** Ends a connection that is not read any further, once it is idle. */
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
  /** The sum of `waiting`. */
  #waiting = 0;
  /** Whether the connection with the most waiting requests is being closed. */
  #isClosingOne = false;

  /**
   * Keeps `server` at `max` connections and what it holds for them at MAX_HELD_BYTES. `onCutOff` is called with the number of
   * connections that were cut off, and with their bytes.
   */
  constructor(server: Server, max: number, onCutOff: (count: number, bytes: number) => void) {
    this.#server = server;
    this.#max = max;
    this.#onCutOff = onCutOff;
    const timer = setInterval(() => this.#check(), CHECK_INTERVAL_MS).unref();
    server.once('close', () => clearInterval(timer));
    server.on('connection', (socket: Socket) => this.#add(socket));
    server.on('request', (request, response) => {
      const { socket, url = '', rawHeaders } = request;
      // The client is told: otherwise, it would send its next request while the idle connection is being closed.
      if (url.length + rawHeaders.join('').length > MAX_KEPT_BYTES) response.shouldKeepAlive = false;
      this.#countRequests(socket, 1);
      response.once('close', () => this.#countRequests(socket, -1));
    });
  }

  #add(socket: Socket): void {
    const connection = { requests: 0, waiting: 0, changedAt: performance.now(), receivedBefore: 0, isKept: true };
    this.#all.set(socket, connection);
    // Node removes its own listener from a socket that it gives away.
    socket.on('error', () => {});
    socket.once('close', () => {
      this.#all.delete(socket);
      this.#waiting -= connection.waiting;
    });
    if (this.#all.size > this.#max) (this.#longestIdle() ?? socket).destroy();
  }

  #countRequests(socket: Socket, change: 1 | -1): void {
    const connection = this.#all.get(socket);
    if (!connection) return;
    this.#all.delete(socket);
    connection.requests += change;
    connection.changedAt = performance.now();
    this.#all.set(socket, connection);
    if (connection.requests > 0) return;
    const { bytesRead } = socket;
    connection.isKept = bytesRead - connection.receivedBefore <= MAX_KEPT_BYTES;
    if (connection.isKept) connection.receivedBefore = bytesRead;
    if (connection.end) connection.end();
    // At a stop, a client would keep its connection open.
    else if (!this.#server.listening) socket.destroy();
  }

  /** Reads nothing more from a connection, and calls `end` once its requests have their responses. Does nothing if called again. */
  endWhenIdle(socket: Socket, end: () => void): void {
    const connection = this.#all.get(socket);
    if (!connection || connection.end) return;
    connection.end = end;
    if (connection.requests > 0) socket.pause();
    else end();
  }

  /** Counts a request that waits for earlier ones of its connection, from which nothing is read meanwhile. */
  beginWait(socket: Socket): void {
    const connection = this.#all.get(socket);
    if (!connection) return;
    // Not at once, because Node resumes the socket when it has parsed this request to its end.
    process.nextTick(() => socket.pause());
    connection.waiting++;
    if (++this.#waiting > MAX_WAITING_REQUESTS && !this.#isClosingOne) this.#closeMostWaiting();
  }

  /** Ends the wait of a request. After the last one, the connection is read again. */
  endWait(socket: Socket): void {
    const connection = this.#all.get(socket);
    if (!connection) return;
    connection.waiting--;
    this.#waiting--;
    resume([socket, connection]);
  }

  /**
   * Closes the connection with the most waiting requests. Until it is closed, its requests are held, so no other connection is
   * read: in the same turn of the event loop, Node would read and parse what thousands of them have sent.
   */
  #closeMostWaiting(): void {
    const all = [...this.#all];
    const [most] = all.reduce((one, other) => (other[1].waiting > one[1].waiting ? other : one));
    const paused = all.filter(([socket]) => socket !== most && !socket.isPaused());
    for (const [socket] of paused) socket.pause();
    this.#isClosingOne = true;
    most.once('close', () => {
      this.#isClosingOne = false;
      paused.forEach(resume);
    });
    most.destroy();
  }

  #longestIdle(): Socket | undefined {
    for (const [socket, { requests, changedAt }] of this.#all) {
      if (requests > 0) continue;
      return performance.now() - changedAt >= IDLE_GRACE_MS ? socket : undefined;
    }
    return undefined;
  }

  #check(): void {
    let held = 0;
    const idleSince = performance.now() - IDLE_GRACE_MS;
    for (const [socket, connection] of this.#all) {
      held += heldBytes(socket, connection);
      if (connection.isKept || connection.requests > 0 || connection.changedAt > idleSince) continue;
      connection.isKept = true;
      endSoon(socket);
    }
    if (held > MAX_HELD_BYTES) this.#cutOffLongestWaiting(held);
  }

  #cutOffLongestWaiting(held: number): void {
    let rest = held;
    let count = 0;
    for (const [socket, connection] of this.#all) {
      const bytes = heldBytes(socket, connection);
      // A connection with no more than its share of the sum is not what exceeds it.
      if (bytes <= MAX_HELD_BYTES / this.#max) continue;
      socket.destroy();
      rest -= bytes;
      count++;
      if (rest <= MAX_HELD_BYTES) break;
    }
    this.#onCutOff(count, held - rest);
  }

  /** Closes connections that have no request in progress, and were sent a response. */
  closeIdle(): void {
    for (const [socket, { requests, receivedBefore }] of this.#all)
      if (requests === 0 && receivedBefore > 0) socket.destroy();
  }

  /** Cuts off all connections, also those that Node's server no longer knows. */
  destroyAll(): void {
    for (const socket of this.#all.keys()) socket.destroy();
  }
}

/** Reads a connection again, unless requests of it wait or it is to be ended. */
function resume([socket, { waiting, end }]: [Socket, Connection]): void {
  if (waiting === 0 && !end) socket.resume();
}

/** Returns the bytes that are held for a connection. A request's body counts as well, although most of it is discarded. */
function heldBytes(socket: Socket, { receivedBefore }: Connection): number {
  const received = Math.min(socket.bytesRead - receivedBefore, MAX_RECEIVED_BYTES);
  return sharing.has(socket) ? received : received + socket.writableLength;
}

/**
 * Ends a connection after what was written to it. What the client still sends is read for LINGER_MS; otherwise the system
 * would reset the connection, and the client could lose the response.
 */
export function endSoon(socket: Socket): void {
  socket.end();
  socket.resume();
  setTimeout(() => socket.destroy(), LINGER_MS).unref();
}
