/**
 * Limits client connections, and what is held for them.
 *
 * # Number
 *
 * Beyond the limit, a new connection closes the one that has been idle longest, or is closed itself. Node's `maxConnections`
 * always closes the new one, so that idle connections could shut out new clients.
 *
 * # Memory
 *
 * Clients decide how long their headers and their unread responses stay in memory. These are summed up for all connections;
 * above MAX_HELD_BYTES, those that have waited longest are cut off. Nothing is held for an idle connection.
 */
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/** How long a connection must have been idle to be closed for a new one; before that, a request may be on its way. */
const IDLE_GRACE_MS = 1000;
/** The most bytes of headers and unread responses of all connections. The sizing in docs/operations.md includes them. */
const MAX_HELD_BYTES = 64 * 2 ** 20;
/** The interval at which they are summed up. For 2,000 connections, that takes a third of a millisecond. */
const CHECK_INTERVAL_MS = 100;
/** The most received bytes that are held for a connection: the longest headers, and what was read together with their end. */
const MAX_RECEIVED_BYTES = 192 * 1024;
/**
 * A connection that has received more than this before it became idle is closed: Node's parser keeps long headers until the
 * next request, of which it may have the beginning already.
 */
export const MAX_KEPT_BYTES = 16 * 1024;
/** How long a connection that was ended is read, in milliseconds. */
const LINGER_MS = 1000;

interface Connection {
  /** Requests in progress, including those with a response that has not been passed to the system yet. */
  requests: number;
  /** When `requests` last changed, in milliseconds of `performance.now()`. */
  changedAt: number;
  /** The bytes that the socket had received when it was last idle, if nothing of them is held. */
  receivedBefore: number;
  /** False if it is to be closed once it is idle. */
  isKept: boolean;
}

/**
 * Keeps `server` at `max` connections and what it holds for them at MAX_HELD_BYTES. `onCutOff` is called with the number of
 * connections that were cut off, and with their bytes.
 */
export function limitConnections(server: Server, max: number, onCutOff: (count: number, bytes: number) => void): void {
  // In the order of `changedAt`: the first idle one has been idle longest.
  const connections = new Map<Socket, Connection>();

  server.on('listening', () => {
    const timer = setInterval(check, CHECK_INTERVAL_MS).unref();
    server.once('close', () => clearInterval(timer));
  });
  server.on('connection', (socket: Socket) => {
    connections.set(socket, { requests: 0, changedAt: performance.now(), receivedBefore: 0, isKept: true });
    socket.once('close', () => connections.delete(socket));
    if (connections.size <= max) return;
    (longestIdle() ?? socket).destroy();
  });

  server.on('request', ({ socket }, response) => {
    countRequests(socket, 1);
    response.once('close', () => countRequests(socket, -1));
  });

  function countRequests(socket: Socket, change: 1 | -1): void {
    const connection = connections.get(socket);
    if (!connection) return;
    connections.delete(socket);
    connection.requests += change;
    connection.changedAt = performance.now();
    connections.set(socket, connection);
    if (connection.requests > 0) return;
    const { bytesRead } = socket;
    connection.isKept = bytesRead - connection.receivedBefore <= MAX_KEPT_BYTES;
    if (connection.isKept) connection.receivedBefore = bytesRead;
  }

  function longestIdle(): Socket | undefined {
    for (const [socket, { requests, changedAt }] of connections) {
      if (requests > 0) continue;
      return performance.now() - changedAt >= IDLE_GRACE_MS ? socket : undefined;
    }
    return undefined;
  }

  /** Returns the bytes that are held for a connection. A request's body counts as well, although most of it is discarded. */
  function heldBytes(socket: Socket, { receivedBefore }: Connection): number {
    return Math.min(socket.bytesRead - receivedBefore, MAX_RECEIVED_BYTES) + socket.writableLength;
  }

  function check(): void {
    let held = 0;
    const idleSince = performance.now() - IDLE_GRACE_MS;
    for (const [socket, connection] of connections) {
      const bytes = heldBytes(socket, connection);
      held += bytes;
      if (connection.isKept || connection.requests > 0 || connection.changedAt > idleSince) continue;
      connection.isKept = true;
      endSoon(socket);
    }
    if (held > MAX_HELD_BYTES) cutOffLongestWaiting(held);
  }

  function cutOffLongestWaiting(held: number): void {
    let rest = held;
    let count = 0;
    for (const [socket, connection] of connections) {
      const bytes = heldBytes(socket, connection);
      // A connection with no more than its share of the sum is not what exceeds it.
      if (bytes <= MAX_HELD_BYTES / max) continue;
      socket.destroy();
      rest -= bytes;
      count++;
      if (rest <= MAX_HELD_BYTES) break;
    }
    onCutOff(count, held - rest);
  }
}

/**
 * Ends a connection after what was written to it. What the client still sends is read for LINGER_MS; otherwise the system
 * would reset the connection, and the client could lose the response.
 */
export function endSoon(socket: Duplex): void {
  socket.on('error', () => {});
  socket.end();
  socket.resume();
  setTimeout(() => socket.destroy(), LINGER_MS).unref();
}
