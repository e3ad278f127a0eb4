/**
 * The sockets of a client's connections. Two faults need them (the names are those of the fault table in
 * docs/operations.md): postgres.js can't destroy a connection that was cut silently ("it hangs"), and it tries again
 * hundreds of times a second where a host accepts connections and closes them ("it accepts connections and closes them").
 */
import { Socket } from 'node:net';
import type { Connection } from '../postgresUrl/postgresUrl.js';

/** A server's answer that refuses TLS: N. */
const NO_TLS = 0x4e;
/** How long the connections of a closed client may take to end on their own. */
const CLOSE_TIMEOUT_MS = 200;

/** The sockets of a client to one host. */
export function createSockets({ hostname, place, options }: Connection) {
  const sockets = new Set<Socket>();
  let isClosed = false;
  const destroyAll = () => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    /** Opens a socket, as postgres.js expects of its option `socket`. */
    async open(): Promise<Socket> {
      const socket = new Socket().setNoDelay(true);
      // No listener tells which ones have closed: for TLS, postgres.js removes them all.
      for (const old of sockets) if (old.destroyed) sockets.delete(old);
      sockets.add(socket);
      // postgres.js waits before it connects again only where the last connection ended with an error.
      socket.once('end', () => {
        if (socket.bytesRead === 0) socket.destroy(closedUnanswered(hostname));
      });
      // postgres.js would begin TLS regardless.
      if ('ssl' in options && typeof options.ssl === 'object') {
        socket.once('data', ([answer]: Buffer) => {
          if (answer === NO_TLS) socket.destroy(withoutTls(hostname));
        });
      }
      if (isClosed) setImmediate(() => socket.destroy());
      else socket.connect(place);
      return Object.assign(socket, { host: hostname });
    },
    /** Cuts all connections: what was sent is rejected with CONNECTION_CLOSED, and the next statement opens new ones. */
    reconnect: destroyAll,
    /** Destroys what is still open, soon after the client was ended: at once, TLS would emit an error that nobody handles. */
    close(): void {
      isClosed = true;
      setTimeout(destroyAll, CLOSE_TIMEOUT_MS).unref();
    },
  };
}

function closedUnanswered(hostname: string): Error {
  const message = `PostgreSQL at ${hostname} closes its connections without an answer`;
  return Object.assign(new Error(message), { code: 'CONNECTION_CLOSED' });
}

function withoutTls(hostname: string): Error {
  const message = `PostgreSQL at ${hostname} offers no TLS, which sslmode in DATABASE_URL asks for`;
  return Object.assign(new Error(message), { code: 'TLS_NOT_OFFERED' });
}
