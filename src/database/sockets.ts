/**
 * The sockets of a client's connections. Two faults need them (the names are those of the fault table in
 * docs/operations.md): postgres.js can't destroy a connection that was cut silently ("it hangs"), and it tries again
 * hundreds of times a second where a host accepts connections and closes them ("it accepts connections and closes them").
 */
import { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Connection } from '../postgresUrl/postgresUrl.js';

/** The delay of each connection that replaces another one. */
const RECONNECT_DELAY_MS = 50;
/** A server's answer that refuses TLS: N. */
const NO_TLS = 0x4e;
/** How long the connections of a closed client may take to end on their own. */
const CLOSE_TIMEOUT_MS = 200;

/** The sockets of a client that has at most `connections` at once to one host. */
export function createSockets({ hostname, place, options }: Connection, connections: number) {
  const sockets = new Set<Socket>();
  let opened = 0;
  let isClosed = false;
  return {
    /** Opens a socket, as postgres.js expects of its option `socket`. */
    async open(): Promise<Socket> {
      if (++opened > connections) await sleep(RECONNECT_DELAY_MS, undefined, { ref: false });
      const socket = new Socket().setNoDelay(true);
      // No listener tells which ones have closed: for TLS, postgres.js removes them all.
      for (const old of sockets) if (old.destroyed) sockets.delete(old);
      sockets.add(socket);
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
    /** Destroys what is still open, soon after the client was ended: at once, TLS would emit an error that nobody handles. */
    close(): void {
      isClosed = true;
      setTimeout(() => {
        for (const socket of sockets) socket.destroy();
      }, CLOSE_TIMEOUT_MS).unref();
    },
  };
}

function withoutTls(hostname: string): Error {
  const message = `PostgreSQL at ${hostname} offers no TLS, which sslmode in DATABASE_URL asks for`;
  return Object.assign(new Error(message), { code: 'TLS_NOT_OFFERED' });
}
