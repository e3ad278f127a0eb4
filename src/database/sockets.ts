/**
 * Opens the sockets of a pool, and destroys silent ones. postgres.js waits forever on a connection that was cut silently.
 * But PostgreSQL cancels a statement at its time limit, so while somebody waits for a response, a socket that has been
 * silent for longer is dead, or not in use. Its statements are then rejected, and can be retried.
 */
import { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import type { DatabaseAddress } from '../config/databaseAddress.js';
import { noteSocketError } from './errors.js';
import { notPostgres, watchLogin } from './login.js';

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

/**
 * Creates the sockets of a pool. PostgreSQL cancels a statement after `statementTimeout` milliseconds; with 0, silent
 * sockets are not destroyed.
 */
export function createSockets(
  { hostname, endpoint, requiresScram, tls, options: { port } }: DatabaseAddress,
  statementTimeout: number,
) {
  const open = new Set<Socket>();
  /** The number of responses that somebody waits for. */
  let waiting = 0;
  let isClosed = false;

  /** Destroys all sockets: running statements reject with CONNECTION_CLOSED; the next one opens a new connection. */
  function destroyAll(): void {
    for (const socket of open) socket.destroy();
  }

  /** Destroys a socket once it is silent for the time limit while somebody waits. */
  function watchSilence(socket: Socket): void {
    socket.setTimeout(statementTimeout + RESPONSE_MARGIN_MS);
    socket.on('timeout', () => {
      const { bytesRead } = socket;
      const isAwaited = waiting > 0;
      // After a stall of this process, a response may have arrived that has not been read yet.
      setImmediate(() => {
        if (isAwaited && socket.bytesRead === bytesRead) socket.destroy();
        // Otherwise the next statement would not start the time limit again.
        else socket.setTimeout(statementTimeout + RESPONSE_MARGIN_MS);
      });
    });
  }

  /** Adds a socket to those that are open until it is closed. */
  function add(socket: Socket): void {
    open.add(socket);
    socket.once('close', () => open.delete(socket));
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
      const response = await firstBytesOf(socket);
      if (String(response) === TLS_NOT_SUPPORTED) {
        if (!isRequired) return socket;
        throw failure('TLS_NOT_OFFERED', 'does not support TLS, but sslmode in DATABASE_URL requires it');
      }
      if (String(response) !== TLS_SUPPORTED) throw failure(...notPostgres(response));
    }
    open.delete(socket);
    const encrypting = connectTls({ ...options, socket });
    add(encrypting);
    return encrypting;
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

  /** Connects a new socket, and starts TLS on it if the address asks for it. */
  async function connect(socket: Socket): Promise<Socket> {
    if (isClosed) throw failure('CONNECTION_ENDED', 'is not connected to any more');
    add(socket.setNoDelay(true).connect(endpoint));
    const used = tls ? await startTls(socket, tls) : socket;
    used.once('error', noteSocketError);
    watchLogin(used, requiresScram, (code, message) => used.destroy(failure(code, message)));
    if (statementTimeout > 0) watchSilence(used);
    return used;
  }

  return {
    /**
     * Opens a socket, as the option `socket` of postgres.js requires. Never rejects, because the driver would then never
     * use this connection of the pool again.
     */
    async open(): Promise<Duplex> {
      const socket = new Socket();
      const used = await connect(socket).catch((reason: Error) => {
        socket.destroy();
        return failing(reason);
      });
      return Object.assign(used, { host: hostname, port });
    },
    /** Returns the number of bytes that the open sockets have received. */
    bytesRead: () => [...open].reduce((sum, { bytesRead }) => sum + bytesRead, 0),
    /** Destroys all sockets. */
    reconnect: destroyAll,
    /** Settles like `response`, which comes from PostgreSQL; until then, a socket that becomes silent is destroyed. */
    async awaited<T>(response: PromiseLike<T>): Promise<T> {
      waiting++;
      try {
        return await response;
      } finally {
        waiting--;
      }
    },
    /** Destroys the sockets that are still open shortly after the pool has ended. */
    close(): void {
      isClosed = true;
      setTimeout(destroyAll, CLOSE_TIMEOUT_MS).unref();
    },
  };
}

/**
 * Returns a socket that emits `reason` once the driver has written to it: if it closed earlier, the driver would keep the
 * bytes, and send them on the connection's next socket.
 */
function failing(reason: Error): Duplex {
  noteSocketError(reason);
  const socket = new Duplex({ emitClose: false, read() {}, write: (_bytes, _encoding, done) => done(reason) });
  // postgres.js waits before it reconnects only if the last connection ended with an error.
  return socket.once('error', () => setImmediate(() => socket.emit('close', true)));
}
