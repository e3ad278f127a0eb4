/**
 * Limits client connections so that no single client can use up the limit: a new connection beyond it closes an older
 * one. Node's `maxConnections` closes the new connection, so one client with enough idle connections could shut out all
 * other clients.
 */
import { readdirSync, readFileSync } from 'node:fs';
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Config } from '../../config/config.js';
import { networkOf } from '../../keys/network.js';
import type { Log } from '../../log.js';
import { UserError } from '../../userError.js';

/**
 * A connection that has been idle for this long may be closed for a new one; before that, a request may be on its way.
 */
const IDLE_GRACE_MS = 1000;
/**
 * Files that are opened after the count: 2 listening sockets, the rate limit store, clients of METRICS_PORT, host name
 * look-ups.
 */
const LATER_FILES = 14;

interface Connection {
  network: string;
  /** Requests in progress, including those with a response that has not been passed to the system yet. */
  requests: number;
  /** When `requests` last changed, in milliseconds of `performance.now()`. */
  changedAt: number;
}

/**
 * Returns MAX_CONNECTIONS, or fewer, with a warning in the log, if the system allows too few open files: beyond its
 * limit, it would refuse every new connection. Call it at the start, before the database is opened.
 * @throws {UserError} if the limit leaves room for no connection
 */
export function maxConnections({ MAX_CONNECTIONS, DATABASE_CONNECTIONS }: Config, log: Log): number {
  const { limit, open } = openFiles();
  const reserved = open + LATER_FILES + DATABASE_CONNECTIONS;
  const max = Math.min(MAX_CONNECTIONS, limit - reserved);
  const allowed = `the system allows ${limit} open files (ulimit -n)`;
  if (max < 1) {
    const needed = `DATABASE_CONNECTIONS (${DATABASE_CONNECTIONS}) needs at least ${reserved + 1}`;
    throw new UserError(`${allowed}, which is too few: ${needed}`);
  }
  if (max < MAX_CONNECTIONS) {
    const needed = `MAX_CONNECTIONS is ${MAX_CONNECTIONS}, which needs ${reserved + MAX_CONNECTIONS}`;
    log.warn(`${allowed}: at most ${max} client connections; ${needed}`);
  }
  return max;
}

/**
 * Returns how many files this process may open, and has open. Without /proc the limit is unknown; on macOS it is ample.
 */
function openFiles(): { limit: number; open: number } {
  try {
    const limits = readFileSync('/proc/self/limits', 'latin1');
    const limit = Number(/^Max open files +(\d+)/m.exec(limits)?.[1] ?? Number.POSITIVE_INFINITY);
    return { limit, open: readdirSync('/proc/self/fd').length };
  } catch {
    return { limit: Number.POSITIVE_INFINITY, open: 0 };
  }
}

/**
 * Keeps `server` at `max` connections: each new one beyond that closes the `connectionToClose`, which may be the new
 * one.
 */
export function limitConnections(server: Server, max: number): void {
  // In the order of `changedAt`: the first idle one has been idle longest, and the first busy one busy longest.
  const connections = new Map<Socket, Connection>();

  server.on('connection', (socket: Socket) => {
    const network = networkOf(socket.remoteAddress ?? '');
    connections.set(socket, { network, requests: 0, changedAt: performance.now() });
    socket.once('close', () => connections.delete(socket));
    if (connections.size <= max) return;
    const surplus = connectionToClose(connections);
    connections.delete(surplus);
    surplus.destroy();
  });

  server.on('request', ({ socket }, response) => {
    countRequests(socket, 1);
    response.once('close', () => countRequests(socket, -1));
  });

  function countRequests(socket: Socket, change: 1 | -1): void {
    const connection = connections.get(socket);
    if (!connection) return;
    connections.delete(socket);
    connections.set(socket, { ...connection, requests: connection.requests + change, changedAt: performance.now() });
  }
}

/**
 * Returns the connection that has been idle longest, if for at least `IDLE_GRACE_MS`. Otherwise returns a connection of
 * the network with the most connections: an idle one if there is one, or else the one that has been busy longest.
 */
function connectionToClose(connections: ReadonlyMap<Socket, Connection>): Socket {
  const now = performance.now();
  const counts = new Map<string, number>();
  for (const [socket, { network, requests, changedAt }] of connections) {
    if (requests === 0 && now - changedAt >= IDLE_GRACE_MS) return socket;
    counts.set(network, (counts.get(network) ?? 0) + 1);
  }
  const rank = ({ network, requests }: Connection) => (counts.get(network) ?? 0) + (requests === 0 ? 0.5 : 0);
  return [...connections].reduce((first, next) => (rank(next[1]) > rank(first[1]) ? next : first))[0];
}
