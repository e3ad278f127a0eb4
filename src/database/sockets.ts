/**
 * Opens the sockets of a pool and detects dead ones. postgres.js waits forever on a connection that was cut silently.
 * But PostgreSQL cancels a statement at its time limit, so a socket that stays silent for longer after a request is
 * dead. The rest of the pool probably is, too, so all sockets are destroyed, and their statements can be retried.
 */
import { Socket } from 'node:net';
import type { DatabaseAddress } from '../config/databaseAddress.js';
import { requireScram } from './authentication.js';

const CHECK_INTERVAL_MS = 100;
/** The delay that the server and the network may add to a statement's time limit. */
const RESPONSE_MARGIN_MS = 500;
/** The server's response to a TLS request if it does not support TLS: N. */
const NO_TLS = 0x4e;
/** How long the connections of a closed pool may take to end on their own. */
const CLOSE_TIMEOUT_MS = 200;

/** A socket's activity as of the latest check. */
interface Activity {
  bytesRead: number;
  bytesWritten: number;
  /** Whether a response is pending: unknown if bytes were both sent and received between two checks. */
  state: 'idle' | 'unknown' | 'awaiting';
  /** Checks since the last byte was received, or since the request was sent. */
  silentChecks: number;
}

/**
 * Creates the sockets of a pool. PostgreSQL cancels a statement after `statementTimeout` milliseconds; with 0, dead
 * sockets are not detected.
 */
export function createSockets(
  { hostname, endpoint, requiresScram, options }: DatabaseAddress,
  statementTimeout: number,
) {
  const sockets = new Map<Socket, Activity>();
  const responseLimitMs = statementTimeout + RESPONSE_MARGIN_MS;
  const maxSilentChecks = responseLimitMs / CHECK_INTERVAL_MS;
  const checks = statementTimeout > 0 ? setInterval(check, CHECK_INTERVAL_MS).unref() : undefined;
  let isClosed = false;

  /** Counts checks, not time: after a stall of this process, a response may have arrived that has not been read yet. */
  function check(): void {
    for (const [{ bytesRead, bytesWritten }, activity] of sockets) {
      const hasSent = bytesWritten > activity.bytesWritten;
      const hasReceived = bytesRead > activity.bytesRead;
      if (hasReceived) Object.assign(activity, { state: hasSent ? 'unknown' : 'idle', silentChecks: 0 });
      else if (hasSent && activity.state !== 'awaiting')
        Object.assign(activity, { state: 'awaiting', silentChecks: 0 });
      else activity.silentChecks++;
      Object.assign(activity, { bytesRead, bytesWritten });
    }
    if (isAnyOverdue('awaiting')) reconnect();
  }

  /** Returns whether an open socket in one of these states has been silent for too long. */
  function isAnyOverdue(...states: Activity['state'][]): boolean {
    return [...sockets].some(
      ([{ destroyed }, { state, silentChecks }]) =>
        !destroyed && silentChecks >= maxSilentChecks && states.includes(state),
    );
  }

  /** Destroys all sockets: running statements reject with CONNECTION_CLOSED; the next one opens a new connection. */
  function reconnect(): void {
    for (const socket of sockets.keys()) socket.destroy();
  }

  const fail = (socket: Socket, code: string, message: string) =>
    socket.destroy(Object.assign(new Error(`PostgreSQL at ${hostname} ${message}`), { code }));

  return {
    /** Milliseconds after which a response is overdue. */
    responseLimitMs,
    /** Opens a socket, as the option `socket` of postgres.js requires. */
    async open(): Promise<Socket> {
      const socket = new Socket().setNoDelay(true);
      // A listener would not find closed sockets: for TLS, postgres.js removes all listeners.
      for (const old of sockets.keys()) if (old.destroyed) sockets.delete(old);
      sockets.set(socket, { bytesRead: 0, bytesWritten: 0, state: 'idle', silentChecks: 0 });
      // postgres.js waits before it reconnects only if the last connection ended with an error.
      socket.once('end', () => {
        if (socket.bytesRead === 0) fail(socket, 'CONNECTION_CLOSED', 'closes its connections without a response');
      });
      // postgres.js would send the password in any form that the server requests, even in clear text.
      if (requiresScram) {
        const message = 'does not authenticate by SCRAM, but require_auth in DATABASE_URL requires it';
        requireScram(socket, () => fail(socket, 'SCRAM_NOT_OFFERED', message));
      }
      // postgres.js would start TLS even if the server refuses it.
      if ('ssl' in options && typeof options.ssl === 'object') {
        socket.once('data', ([response]: Buffer) => {
          if (response !== NO_TLS) return;
          fail(socket, 'TLS_NOT_OFFERED', 'does not support TLS, but sslmode in DATABASE_URL requires it');
        });
      }
      if (isClosed) setImmediate(() => socket.destroy());
      else socket.connect(endpoint);
      return Object.assign(socket, { host: hostname, port: options.port });
    },
    reconnect,
    /** Reconnects if a socket that may be awaiting a response is silent. Call this if a response is overdue. */
    reconnectIfSilent(): void {
      if (isAnyOverdue('awaiting', 'unknown')) reconnect();
    },
    /** Destroys the open sockets shortly after the pool has ended: at once, TLS would emit an unhandled error. */
    close(): void {
      isClosed = true;
      clearInterval(checks);
      setTimeout(reconnect, CLOSE_TIMEOUT_MS).unref();
    },
  };
}
