/** The server's part of a login: https://www.postgresql.org/docs/current/protocol-message-formats.html */
import type { Socket } from 'node:net';

/** The type of an authentication message. */
const AUTHENTICATION = 'R'.charCodeAt(0);
/** The kinds of the authentication messages in a login by SCRAM, in order. */
const SCRAM = [10, 11, 12, 0];
/** The size of a message's type and length, and of the kind that follows in an authentication message. */
const [HEADER_BYTES, KIND_BYTES] = [5, 4];

/**
 * Calls `refuse` if the server on a new connection without TLS does not authenticate by SCRAM, in which each side
 * proves that it knows the password and reveals nothing of it. Call this before the driver adds its listeners, so that
 * `refuse` is called before the driver responds.
 */
export function requireScram(socket: Socket, refuse: () => void): void {
  let unread = Buffer.alloc(0);
  let step = 0;
  socket.on('data', function onData(chunk: Buffer) {
    unread = Buffer.concat([unread, chunk]);
    while (unread.length >= HEADER_BYTES + KIND_BYTES) {
      const end = 1 + unread.readUInt32BE(1);
      const isExpected = unread.readUInt32BE(HEADER_BYTES) === SCRAM[step];
      if (end < HEADER_BYTES || (unread[0] === AUTHENTICATION && !isExpected)) return refuse();
      if (unread.length < end) return;
      if (unread[0] === AUTHENTICATION) step++;
      if (step === SCRAM.length) return void socket.off('data', onData);
      unread = unread.subarray(end);
    }
  });
}
