/**
 * Opens the sockets of a pool and detects dead ones. postgres.js waits forever on a connection that was cut silently.
 * But PostgreSQL cancels a statement at its time limit, so a socket that stays silent for longer after a request is
 * dead. The rest of the pool probably is, too, so all sockets are destroyed, and their statements can be retried.
 */
import { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { DatabaseAddress } from '../config/databaseAddress.js';
import { requireScram } from './authentication.js';

const CHECK_INTERVAL_MS = 100;
/** The delay that the server and the network may add to a statement's time limit. */
const RESPONSE_MARGIN_MS = 500;
/**
 * The message SSLRequest, and the server's responses
 * (https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-SSL).
 */
const TLS_REQUEST = Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]);
const [TLS_SUPPORTED, TLS_NOT_SUPPORTED] = ['S', 'N'];
/** The longest time for a connection to be opened and for the response to TLS_REQUEST. */
const TLS_REQUEST_TIMEOUT_MS = 1500;
/** How long the connections of a closed pool may take to end on their own. */
const CLOSE_TIMEOUT_MS = 200;

/** A socket's activity as of the latest check. */
interface Activity {
  /** The socket that the driver uses: the TLS socket around this one, or without TLS, this one. */
  used: Socket;
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
  { hostname, endpoint, requiresScram, tls, options: { port } }: DatabaseAddress,
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
      ([, { used, state, silentChecks }]) =>
        !used.destroyed && silentChecks >= maxSilentChecks && states.includes(state),
    );
  }

  /** Destroys all sockets: running statements reject with CONNECTION_CLOSED; the next one opens a new connection. */
  function reconnect(): void {
    for (const { used } of sockets.values()) used.destroy();
  }

  const failure = (code: string, message: string) =>
    Object.assign(new Error(`PostgreSQL at ${hostname} ${message}`), { code });

  /**
   * Starts TLS on a new socket, and returns the socket that encrypts; `socket` itself if TLS is neither supported nor
   * required. postgres.js could do this, but it keeps the encrypting socket to itself. If the socket below is destroyed
   * during a write, Node emits `close` and then an error, which no listener handles, and the driver's queries hang.
   */
  async function startTls(socket: Socket, { isRequired, isDirect, options }: NonNullable<typeof tls>): Promise<Socket> {
    if (!isDirect) {
      socket.write(TLS_REQUEST);
      const response = String(await firstBytesOf(socket));
      if (response === TLS_NOT_SUPPORTED && !isRequired) return socket;
      if (response !== TLS_SUPPORTED) {
        throw failure('TLS_NOT_OFFERED', 'does not support TLS, but sslmode in DATABASE_URL requires it');
      }
    }
    return connectTls({ ...options, socket });
  }

  function firstBytesOf(socket: Socket): Promise<Buffer> {
    const timedOut = () => socket.destroy(failure('CONNECT_TIMEOUT', 'does not respond'));
    const timer = setTimeout(timedOut, TLS_REQUEST_TIMEOUT_MS);
    const bytes = new Promise<Buffer>((resolve, reject) => {
      socket.once('data', resolve).once('error', reject);
      socket.once('close', () => reject(failure('CONNECTION_CLOSED', 'closed the connection')));
    });
    return bytes.finally(() => clearTimeout(timer));
  }

  return {
    /** Milliseconds after which a response is overdue. */
    responseLimitMs,
    /**
     * Opens a socket, as the option `socket` of postgres.js requires. Never rejects, because the driver would then never
     * use this connection of the pool again: a socket that can't be opened emits the reason.
     */
    async open(): Promise<Socket> {
      const socket = new Socket().setNoDelay(true);
      for (const [old, { used }] of sockets) if (used.destroyed) sockets.delete(old);
      const activity: Activity = { used: socket, bytesRead: 0, bytesWritten: 0, state: 'idle', silentChecks: 0 };
      sockets.set(socket, activity);
      // postgres.js waits before it reconnects only if the last connection ended with an error.
      socket.once('end', () => {
        if (socket.bytesRead > 0) return;
        socket.destroy(failure('CONNECTION_CLOSED', 'closes its connections without a response'));
      });
      // postgres.js would send the password in any form that the server requests, even in clear text.
      if (requiresScram) {
        const message = 'does not authenticate by SCRAM, but require_auth in DATABASE_URL requires it';
        requireScram(socket, () => socket.destroy(failure('SCRAM_NOT_OFFERED', message)));
      }
      if (isClosed) {
        destroySoon(socket);
      } else {
        socket.connect(endpoint);
        if (tls) activity.used = await startTls(socket, tls).catch((reason) => destroySoon(new Socket(), reason));
      }
      return Object.assign(activity.used, { host: hostname, port });
    },
    reconnect,
    /** Reconnects if a socket that may be awaiting a response is silent. Call this if a response is overdue. */
    reconnectIfSilent(): void {
      if (isAnyOverdue('awaiting', 'unknown')) reconnect();
    },
    /** Destroys the sockets that are still open shortly after the pool has ended. */
    close(): void {
      isClosed = true;
      clearInterval(checks);
      setTimeout(reconnect, CLOSE_TIMEOUT_MS).unref();
    },
  };
}

/** Destroys a socket after the driver has added its listeners. */
function destroySoon(socket: Socket, reason?: Error): Socket {
  setImmediate(() => socket.destroy(reason));
  return socket;
}
