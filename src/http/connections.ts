/**
 * A limit on client connections that no single client can use up: when there is one too many, an older one is closed.
 * Node's own `maxConnections` closes the new one, so a client with enough idle connections could shut all others out.
 */
import { readFileSync } from 'node:fs';
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Config } from '../config.js';
import type { Log } from '../log.js';
import { networkOf } from '../request/client.js';
import { UserError } from '../userError.js';

/** A connection that has been idle this long may be closed for a new one; until then, its first request may be on its way. */
const IDLE_GRACE_MS = 1000;
/** Open files beside connections: Node's own (20), what listens (2), the limit's store, and clients of METRICS_PORT. */
const OTHER_FILES = 34;

interface Connection {
  network: string;
  /** Requests that are being worked on, or whose answers have not been handed to the system yet. */
  requests: number;
  /** When `requests` last changed. */
  since: number;
}

/**
 * MAX_CONNECTIONS, or as many as the system's limit on open files leaves room for, which is logged: beyond that limit the
 * system itself would refuse every new connection.
 * @throws {UserError} where there is room for none
 */
export function mostConnections({ MAX_CONNECTIONS, DATABASE_CONNECTIONS }: Config, log: Log): number {
  const allowed = openFilesLimit();
  const others = OTHER_FILES + DATABASE_CONNECTIONS;
  const most = Math.min(MAX_CONNECTIONS, allowed - others);
  const few = `the system allows ${allowed} open files (ulimit -n)`;
  if (most < 1)
    throw new UserError(
      `${few}, which are too few: DATABASE_CONNECTIONS (${DATABASE_CONNECTIONS}) takes ${others + 1}`,
    );
  if (most < MAX_CONNECTIONS) {
    const wanted = `MAX_CONNECTIONS is ${MAX_CONNECTIONS}, which takes ${others + MAX_CONNECTIONS}`;
    log.warn(`${few}: at most ${most} client connections; ${wanted}`);
  }
  return most;
}

/** Infinity where the system doesn't tell: macOS lets Node have more than it needs. */
function openFilesLimit(): number {
  try {
    const limits = readFileSync('/proc/self/limits', 'latin1');
    return Number(/^Max open files +(\d+)/m.exec(limits)?.[1] ?? Number.POSITIVE_INFINITY);
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

/** Keeps `server` at `most` connections: for one more, `leastWanted` is closed, which may be the new one itself. */
export function boundConnections(server: Server, most: number): void {
  // In the order of their last change: the first idle one has been idle longest, the first busy one busy longest.
  const connections = new Map<Socket, Connection>();

  server.on('connection', (socket: Socket) => {
    const network = networkOf(socket.remoteAddress ?? '');
    connections.set(socket, { network, requests: 0, since: performance.now() });
    socket.once('close', () => connections.delete(socket));
    if (connections.size <= most) return;
    const closed = leastWanted(connections);
    connections.delete(closed);
    closed.destroy();
  });

  server.on('request', ({ socket }, response) => {
    change(socket, 1);
    response.once('close', () => change(socket, -1));
  });

  function change(socket: Socket, by: number): void {
    const connection = connections.get(socket);
    if (!connection) return;
    connections.delete(socket);
    connections.set(socket, { ...connection, requests: connection.requests + by, since: performance.now() });
  }
}

/**
 * The connection that has been idle longest, if for `IDLE_GRACE_MS`. Otherwise one of the address with the most: an idle
 * one if there is any, else the one whose request has run longest.
 */
function leastWanted(connections: ReadonlyMap<Socket, Connection>): Socket {
  const now = performance.now();
  const counts = new Map<string, number>();
  for (const [socket, { network, requests, since }] of connections) {
    if (requests === 0 && now - since >= IDLE_GRACE_MS) return socket;
    counts.set(network, (counts.get(network) ?? 0) + 1);
  }
  const rank = ({ network, requests }: Connection) => (counts.get(network) ?? 0) + (requests === 0 ? 0.5 : 0);
  return [...connections].reduce((one, other) => (rank(other[1]) > rank(one[1]) ? other : one))[0];
}
