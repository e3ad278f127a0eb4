/**
 * A limit on client connections that no single client can exhaust: when there is one too many, an older one is closed.
 * Node's own `maxConnections` closes the new one, so a client with enough idle connections could shut all others out.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { networkOf } from './request/client.js';

/** A connection without a request for this long makes room for any other; before that, its first may be on its way. */
const IDLE_GRACE_MS = 1000;

interface Connection {
  network: string;
  /** Requests that are being worked on, or whose answers have not been handed to the system yet. */
  requests: number;
  /** When `requests` last changed. */
  since: number;
}

/**
 * Keeps `server` at `most` connections. Beyond that, the connection that has been idle longest is closed. If none has
 * been idle for `IDLE_GRACE_MS`, the address with the most connections loses one: an idle one if there is any, else the
 * one whose request has run longest. But if the new connection comes from that same address and none of its connections
 * is idle, the new one is closed instead.
 */
export function boundConnections(server: Server, most: number): void {
  // In the order of their last change: the first idle one has been idle longest, the first busy one busy longest.
  const connections = new Map<Socket, Connection>();

  server.on('connection', (socket: Socket) => {
    const network = networkOf(socket.remoteAddress ?? '');
    if (connections.size >= most) {
      const superfluous = findSuperfluous(connections, network) ?? socket;
      connections.delete(superfluous);
      superfluous.destroy();
      if (superfluous === socket) return;
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
}

function findSuperfluous(connections: ReadonlyMap<Socket, Connection>, asking: string): Socket | undefined {
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
