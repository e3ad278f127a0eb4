/**
 * Limits client connections: beyond the limit, a new connection closes the one that has been idle longest, or is closed
 * itself. Node's `maxConnections` always closes the new one, so that idle connections could shut out new clients.
 */
import type { Server } from 'node:http';
import type { Socket } from 'node:net';

/** How long a connection must have been idle to be closed for a new one; before that, a request may be on its way. */
const IDLE_GRACE_MS = 1000;

interface Connection {
  /** Requests in progress, including those with a response that has not been passed to the system yet. */
  requests: number;
  /** When `requests` last changed, in milliseconds of `performance.now()`. */
  changedAt: number;
}

/** Keeps `server` at `max` connections. */
export function limitConnections(server: Server, max: number): void {
  // In the order of `changedAt`: the first idle one has been idle longest.
  const connections = new Map<Socket, Connection>();

  server.on('connection', (socket: Socket) => {
    connections.set(socket, { requests: 0, changedAt: performance.now() });
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
    connections.set(socket, { requests: connection.requests + change, changedAt: performance.now() });
  }

  function longestIdle(): Socket | undefined {
    for (const [socket, { requests, changedAt }] of connections) {
      if (requests > 0) continue;
      return performance.now() - changedAt >= IDLE_GRACE_MS ? socket : undefined;
    }
    return undefined;
  }
}
