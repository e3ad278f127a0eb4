/**
 * The socket of a connection: opens it, once, and destroys it if it is silent. postgres.js waits forever on a connection
 * that was cut silently. But PostgreSQL cancels a statement at its time limit, so while a response is awaited, a socket
 * that has been silent for longer is dead.
 */
import { Socket } from 'node:net';
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
/** The longest silence of the server until it has accepted the login. */
const LOGIN_SILENCE_MS = 1500;

/** The code of the error if the server did not respond. */
export const SILENT = 'CONNECTION_SILENT';

export class ConnectionSocket {
  /** Why the connection can't be used, if it can't: it could not be opened, or it is closed. */
  failure: Error | undefined;
  /** The number of responses that are awaited. */
  awaiting = 0;
  /** The number of responses, or errors, that have come. */
  responses = 0;
  /** When the server last sent something, or was asked for something while nothing was awaited, by `performance.now()`. */
  quietSince = 0;
  readonly #address: DatabaseAddress;
  readonly #statementTimeout: number;
  readonly #onBroken: (reason: Error) => void;
  #socket: Socket | undefined;
  #isReady = false;
  #timer: NodeJS.Timeout | undefined;

  /**
   * Creates the socket of one connection. PostgreSQL cancels a statement after `statementTimeout` milliseconds; with 0, a
   * silent socket is not destroyed. Calls `onBroken` once, in the event that makes the connection unusable.
   */
  constructor(address: DatabaseAddress, statementTimeout: number, onBroken: (reason: Error) => void) {
    this.#address = address;
    this.#statementTimeout = statementTimeout;
    this.#onBroken = onBroken;
  }

  /** The number of bytes that have arrived. */
  get bytesRead(): number {
    return this.#socket?.bytesRead ?? 0;
  }

  /** Opens the socket, as the option `socket` of postgres.js requires. @throws if it can't be opened, or was before */
  async open(): Promise<Socket> {
    if (this.failure) throw this.failure;
    try {
      const socket = await this.#connect();
      return Object.assign(socket, { host: this.#address.hostname, port: this.#address.options.port });
    } catch (error) {
      this.destroy(error as Error);
      throw error;
    }
  }

  /** Closes the socket at once. Its statements reject with `reason`. */
  destroy(reason = this.#failure('CONNECTION_ENDED', 'is not connected to any more')): void {
    const isFirst = this.failure === undefined;
    this.failure ??= reason;
    clearTimeout(this.#timer);
    if (isFirst) {
      noteSocketError(reason);
      this.#onBroken(reason);
    }
    this.#socket?.destroy(reason);
  }

  /** Settles like `response`, which comes from PostgreSQL; if the socket becomes silent until then, it is destroyed. */
  async awaited<T>(response: PromiseLike<T>): Promise<T> {
    if (this.awaiting++ === 0) this.#watchSilence();
    try {
      return await response;
    } finally {
      if (!this.failure) this.responses++;
      this.awaiting--;
    }
  }

  /** Connects, and starts TLS if the address asks for it. */
  async #connect(): Promise<Socket> {
    const { endpoint, requiresScram, tls } = this.#address;
    const socket = new Socket().setNoDelay(true).connect(endpoint);
    this.#socket = socket;
    this.#watchSilence();
    const used = tls ? await this.#startTls(socket, tls) : socket;
    this.#socket = used;
    // Before the driver's listeners, since it would still send statements between these events.
    used.once('error', (reason) => this.destroy(reason));
    used.on('data', () => (this.quietSince = performance.now()));
    used.once('close', () => this.#close('closed the connection'));
    used.once('end', () =>
      this.#close(this.#isReady ? 'closed the connection' : 'closed the connection during the login'),
    );
    watchLogin(used, requiresScram, {
      onReady: () => {
        this.#isReady = true;
        clearTimeout(this.#timer);
        this.#timer = undefined;
        this.#watchSilence();
      },
      fail: (...fault) => this.destroy(this.#failure(...fault)),
    });
    return used;
  }

  #close(how: string): void {
    this.destroy(this.#failure('CONNECTION_CLOSED', how));
  }

  /** Destroys the socket if the server sends nothing for the time limit while it logs in or a response is awaited. */
  #watchSilence(): void {
    this.quietSince = performance.now();
    this.#checkLater();
  }

  #checkLater(): void {
    if (this.#isReady && this.#statementTimeout === 0) return;
    const limitMs = () => (this.#isReady ? this.#statementTimeout + RESPONSE_MARGIN_MS : LOGIN_SILENCE_MS);
    const leftMs = () => this.quietSince + limitMs() - performance.now();
    const check = () => {
      this.#timer = undefined;
      if (this.#isReady && this.awaiting === 0) return;
      if (leftMs() > 0) this.#checkLater();
      else this.destroy(this.#failure(this.#isReady ? SILENT : 'CONNECT_TIMEOUT', 'does not respond'));
    };
    // After a stall of this process, a response may have arrived that has not been read yet.
    this.#timer ??= setTimeout(() => setImmediate(check), leftMs());
  }

  #failure(code: string, message: string): Error {
    return Object.assign(new Error(`PostgreSQL at ${this.#address.hostname} ${message}`), { code });
  }

  /**
   * Starts TLS on a new socket, and returns the socket that encrypts; `socket` itself if TLS is neither supported nor
   * required. postgres.js could do this, but it keeps the encrypting socket to itself. If the socket below is destroyed
   * during a write, Node emits `close` and then an error, which no listener handles, and the driver's queries hang.
   */
  async #startTls(
    socket: Socket,
    { isRequired, isDirect, options }: NonNullable<DatabaseAddress['tls']>,
  ): Promise<Socket> {
    if (!isDirect) {
      socket.write(TLS_REQUEST);
      const response = await this.#firstBytesOf(socket);
      this.quietSince = performance.now();
      if (String(response) === TLS_NOT_SUPPORTED) {
        if (!isRequired) return socket;
        throw this.#failure('TLS_NOT_OFFERED', 'does not support TLS, but sslmode in DATABASE_URL requires it');
      }
      if (String(response) !== TLS_SUPPORTED) throw this.#failure(...notPostgres(response));
    }
    return connectTls({ ...options, socket });
  }

  #firstBytesOf(socket: Socket): Promise<Buffer> {
    return new Promise<Buffer>((resolve, reject) => {
      socket.once('data', resolve).once('error', reject);
      socket.once('close', () => reject(this.#failure('CONNECTION_CLOSED', 'closed the connection')));
    });
  }
}
