/**
 * A limit on client connections that no single client can use up: when there is one too many, an older one is closed.
 * Node's own `maxConnections` closes the new one, so a client with enough idle connections could shut all others out.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Config } from '../config.js';
import { descriptorLimit } from '../descriptors.js';
import type { Log } from '../log.js';
import { networkOf } from '../request/client.js';
import { UserError } from '../userError.js';

/** A connection that has been idle this long may be closed for a new one; until then, its first request may be on its way. */
const IDLE_GRACE_MS = 1000;

/** Descriptors beside connections: Node's own (20), what listens (2), the files of /docs, and clients of METRICS_PORT. */
const OTHER_DESCRIPTORS = 28;
/** Connections of the limit's store, at most. */
const LIMIT_CONNECTIONS = 3;
const CHECK_INTERVAL_MS = 1000;

interface Connection {
  network: string;
  /** Requests that are being worked on, or whose answers have not been handed to the system yet. */
  requests: number;
  /** When `requests` last changed. */
  since: number;
}

const otherDescriptors = (config: Config) => OTHER_DESCRIPTORS + 2 * (LIMIT_CONNECTIONS + config.DATABASE_CONNECTIONS);

/** @throws {UserError} where the system's limit on open files leaves room for no client's connection */
export function requireDescriptors(config: Config): void {
  const [allowed, least] = [descriptorLimit(), otherDescriptors(config) + 1];
  if (allowed >= least) return;
  const atLeast = `DATABASE_CONNECTIONS (${config.DATABASE_CONNECTIONS}) takes ${least}`;
  throw new UserError(`the system allows ${allowed} open files (ulimit -n), which are too few: ${atLeast}`);
}

/**
 * Keeps `server` at MAX_CONNECTIONS, or at as many as the system's limit on open files leaves room for, which is logged:
 * beyond that limit the system itself would refuse every new connection. When there is one too many, the connection that
 * has been idle longest is closed. If none has been idle for `IDLE_GRACE_MS`, the address with the most connections loses
 * one: an idle one if there is any, else the one whose request has run longest. But if the new connection comes from that
 * same address and none of its connections is idle, the new one is closed instead.
 * @returns a function that ends the watch on the system's limit
 */
export function boundConnections(server: Server, config: Config, log: Log): () => void {
  // In the order of their last change: the first idle one has been idle longest, the first busy one busy longest.
  const connections = new Map<Socket, Connection>();
  // In a failover, the old connections to the database last until the new ones have taken over.
  const others = otherDescriptors(config);
  let most = config.MAX_CONNECTIONS;

  function followLimit(): void {
    const allowed = descriptorLimit();
    const before = most;
    most = Math.max(1, Math.min(config.MAX_CONNECTIONS, allowed - others));
    if (most !== before) {
      const wanted = `MAX_CONNECTIONS is ${config.MAX_CONNECTIONS}, which takes ${others + config.MAX_CONNECTIONS}`;
      log.warn(`the system allows ${allowed} open files (ulimit -n): at most ${most} client connections; ${wanted}`);
    }
    while (connections.size > most) close(leastWanted(connections, ''));
  }

  function close(socket: Socket | undefined): void {
    if (!socket) return;
    connections.delete(socket);
    socket.destroy();
  }

  followLimit();
  const watch = setInterval(followLimit, CHECK_INTERVAL_MS).unref();

  server.on('connection', (socket: Socket) => {
    const network = networkOf(socket.remoteAddress ?? '');
    if (connections.size >= most) {
      const closed = leastWanted(connections, network) ?? socket;
      close(closed);
      if (closed === socket) return;
    }
    connections.set(socket, { network, requests: 0, since: performance.now() });
    socket.once('close', () => connections.delete(socket));
  });

  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    change(socket, 1);
    response.once('close', () => change(socket, -1));
  });

  function change(socket: Socket, by: number): void {
    const connection = connections.get(socket);
    if (!connection) return;
    connections.delete(socket);
    connection.requests += by;
    connection.since = performance.now();
    connections.set(socket, connection);
  }

  return () => clearInterval(watch);
}

/** The connection to be closed for a new one from `asking`; undefined where that is the new one itself. */
function leastWanted(connections: ReadonlyMap<Socket, Connection>, asking: string): Socket | undefined {
  const longestIdle = first(connections, ({ requests }) => requests === 0);
  const since = longestIdle && connections.get(longestIdle)?.since;
  if (since !== undefined && performance.now() - since >= IDLE_GRACE_MS) return longestIdle;
  const largest = largestNetwork(connections, asking);
  const idle = first(connections, ({ network, requests }) => network === largest && requests === 0);
  return idle ?? first(connections, ({ network }) => network === largest && network !== asking);
}

function first(connections: ReadonlyMap<Socket, Connection>, isWanted: (connection: Connection) => boolean) {
  for (const [socket, connection] of connections) if (isWanted(connection)) return socket;
  return undefined;
}

/** The network with the most connections; in a tie, `asking`. */
function largestNetwork(connections: ReadonlyMap<Socket, Connection>, asking: string): string {
  const counts = new Map<string, number>();
  for (const { network } of connections.values()) counts.set(network, (counts.get(network) ?? 0) + 1);
  let largest = asking;
  for (const [network, count] of counts) if (count > (counts.get(largest) ?? 0)) largest = network;
  return largest;
}
