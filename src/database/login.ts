/** The server's part of a login: https://www.postgresql.org/docs/current/protocol-message-formats.html */
import type { Socket } from 'node:net';
import { escapeHidden } from '../messages/shown.js';

/** The types of the messages that a server sends before it is ready: ErrorResponse, NoticeResponse and the rest. */
const TYPES = 'ENRSKZ';
const [AUTHENTICATION, READY] = ['R', 'Z'];
/** The kinds of the authentication messages in a login by SCRAM, in order. */
const SCRAM = [10, 11, 12, 0];
const NO_SCRAM = 'does not authenticate by SCRAM, but require_auth in DATABASE_URL requires it';
/** The size of a message's type and length. The kind of an authentication message follows. */
const HEADER_BYTES = 5;
/** More than any of these messages has. */
const MAX_BYTES = 10_000;

/**
 * Watches the messages that the server on a new connection sends until it is ready, and calls `fail` if it closes the
 * connection, does not speak PostgreSQL's protocol, or, if `requiresScram` is set, does not authenticate by SCRAM, in
 * which each side proves that it knows the password and reveals nothing of it. Call this before the driver adds its
 * listeners, so that `fail` is called before the driver responds.
 */
export function watchLogin(
  socket: Socket,
  requiresScram: boolean,
  fail: (code: string, message: string) => void,
): void {
  let unread = Buffer.alloc(0);
  const kinds: number[] = [];
  const stop = () => socket.off('data', onData).off('end', onEnd);
  const refuse = (code: string, message: string) => {
    stop();
    fail(code, message);
  };
  const onEnd = () => refuse('CONNECTION_CLOSED', 'closed the connection during the login');
  const onData = (chunk: Buffer) => {
    unread = Buffer.concat([unread, chunk]);
    while (unread.length >= HEADER_BYTES) {
      const type = String.fromCharCode(unread[0] as number);
      const length = 1 + unread.readUInt32BE(1);
      if (!TYPES.includes(type) || length < HEADER_BYTES || length > MAX_BYTES) return refuse(...notPostgres(unread));
      if (unread.length < length) return;
      if (type === AUTHENTICATION) kinds.push(unread.readUInt32BE(HEADER_BYTES));
      const isScram = kinds.every((kind, i) => kind === SCRAM[i]) && (type !== READY || kinds.length === SCRAM.length);
      if (requiresScram && !isScram) return refuse('SCRAM_NOT_OFFERED', NO_SCRAM);
      if (type === READY) return void stop();
      unread = unread.subarray(length);
    }
  };
  socket.on('data', onData).on('end', onEnd);
}

/** Returns the code and the message of a response that is not PostgreSQL's, or that a server without resources sends. */
export function notPostgres(response: Buffer): [code: string, message: string] {
  const shown = escapeHidden(response.toString('latin1', 0, 80));
  return ['CONNECTION_REFUSED', `sends "${shown}", which is not part of its protocol; is another program listening?`];
}
