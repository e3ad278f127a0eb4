/** What precedes statements: TLS, and the login (https://www.postgresql.org/docs/current/protocol-message-formats.html). */
import type { Socket } from 'node:net';
import { escapeHidden } from '../messages/shown.js';

/** SSLRequest and its responses (https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-SSL). */
const TLS_REQUEST = Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]);
const [TLS_SUPPORTED, TLS_NOT_SUPPORTED] = ['S', 'N'];
const NO_TLS = 'does not support TLS, but sslmode in DATABASE_URL requires it';

/** Returns the error of a server that can't be used; its message begins with "PostgreSQL at" and the host. */
export function serverError(hostname: string, code: string, message: string): Error {
  return Object.assign(new Error(`PostgreSQL at ${hostname} ${message}`), { code });
}

/** Returns the error of a connection that the server has closed; `during` says when, if that explains it. */
export const closedError = (hostname: string, during = '') =>
  serverError(hostname, 'CONNECTION_CLOSED', `closed the connection${during}`);

/**
 * Asks the server on a socket that is being connected whether it supports TLS, and returns that. If `isDirect` is set, only waits
 * for the connection. postgres.js could do this, but it keeps the encrypting socket to itself. If the socket below is
 * destroyed first, Node emits `close` and then an error, which no listener handles, and the driver's queries hang.
 * @throws if the server does not support TLS but `isRequired` is set, or does not respond as PostgreSQL does
 */
export async function agreeOnTls(
  socket: Socket,
  { hostname, isRequired, isDirect }: { hostname: string; isRequired: boolean; isDirect: boolean },
): Promise<boolean> {
  if (!isDirect) socket.write(TLS_REQUEST);
  const response = await new Promise<Buffer>((resolve, reject) => {
    socket.once(isDirect ? 'connect' : 'data', resolve).once('close', () => reject(closedError(hostname)));
  });
  if (isDirect || String(response) === TLS_SUPPORTED) return true;
  if (String(response) !== TLS_NOT_SUPPORTED) throw notPostgres(hostname, response);
  if (isRequired) throw serverError(hostname, 'TLS_NOT_OFFERED', NO_TLS);
  return false;
}

/**
 * The contents of the messages that a server sends before it is ready, by type, and by kind if they are about
 * authentication. The driver ends the process, or waits, if it gets others.
 */
const MESSAGES: Record<string, RegExp> = {
  E: /C\w{5}\0/, // an error, with its code
  N: /\0$/, // a notice
  S: /\0$/, // a setting
  K: /^.{8,}$/s, // keys to cancel statements
  Z: /^[ITE]$/, // ready
  R0: /^.{4}$/s, // logged in
  R3: /^.{4}$/s, // the password in clear text
  R5: /^.{8}$/s, // its MD5
  R10: /\0$/, // SCRAM: its mechanisms, the challenge, the signature
  R11: /^.{4}r=[^,]+,s=[^,]+,i=[1-9]\d{0,6}(,|$)/s,
  R12: /^.{4}[ve]=/s,
};
const TYPES = new Set(Object.keys(MESSAGES).map(([type]) => type));
const [AUTHENTICATION, READY] = ['R', 'Z'];
/** The authentication messages of a login by SCRAM, in order. */
const SCRAM = ['R10', 'R11', 'R12', 'R0'];
const NO_SCRAM = 'does not authenticate by SCRAM, but require_auth in DATABASE_URL requires it';
/** Authentication by Kerberos: its fifth version, GSSAPI and SSPI. */
const KERBEROS = /^R[279]$/;
const NO_KERBEROS =
  'asks for Kerberos (GSSAPI or SSPI), which is not supported; have its pg_hba.conf ask for scram-sha-256 from this service';
/** The size of a message's type and length. The kind of an authentication message follows, in four bytes. */
const HEADER_BYTES = 5;
/** The longest message that is read. None of these has as many bytes. */
const MAX_BYTES = 10_000;

/**
 * Watches what the server on a new connection sends until it is ready, and then calls `onReady`. Destroys the socket if the
 * server does not speak PostgreSQL's protocol, or, if `requiresScram` is set, does not authenticate by SCRAM, in which each side
 * proves that it knows the password and reveals nothing of it. What is wrong is kept from the driver.
 */
export function watchLogin(
  socket: Socket,
  { hostname, requiresScram }: { hostname: string; requiresScram: boolean },
  onReady: () => void,
): void {
  let unread = Buffer.alloc(0);
  const authentication: string[] = [];
  const { emit } = socket;
  /** Takes the first unread message, if it is complete, and returns its kind. @throws if it is not PostgreSQL's */
  const take = (): string | undefined => {
    if (unread.length < HEADER_BYTES) return undefined;
    const type = String.fromCharCode(unread[0] as number);
    const length = 1 + unread.readUInt32BE(1);
    if (!TYPES.has(type) || length > MAX_BYTES) throw notPostgres(hostname, unread);
    if (unread.length < length) return undefined;
    const content = unread.subarray(HEADER_BYTES, length);
    const kind = type === AUTHENTICATION && content.length >= 4 ? type + content.readUInt32BE() : type;
    if (KERBEROS.test(kind)) throw serverError(hostname, 'KERBEROS_REQUIRED', NO_KERBEROS);
    if (!MESSAGES[kind]?.test(content.toString('latin1'))) throw notPostgres(hostname, unread);
    unread = unread.subarray(length);
    return kind;
  };
  /** Notes the kind of a message, and returns whether all messages until now may be those of a login by SCRAM. */
  const continuesScram = (kind: string) => {
    if (kind === READY) return authentication.length === SCRAM.length;
    if (kind.startsWith(AUTHENTICATION)) authentication.push(kind);
    return authentication.every((noted, i) => noted === SCRAM[i]);
  };
  const read = (chunk: Buffer) => {
    unread = Buffer.concat([unread, chunk]);
    for (;;) {
      const kind = take();
      if (!kind) return;
      if (requiresScram && !continuesScram(kind)) throw serverError(hostname, 'SCRAM_NOT_OFFERED', NO_SCRAM);
      if (kind !== READY) continue;
      socket.emit = emit;
      return onReady();
    }
  };
  // Not a listener, since the driver's listener would get the same bytes.
  socket.emit = (event: string, ...values: unknown[]) => {
    try {
      if (event === 'data') read(values[0] as Buffer);
    } catch (error) {
      socket.destroy(error as Error);
      return true;
    }
    return Reflect.apply(emit, socket, [event, ...values]);
  };
}

/** Returns the error of a response that is not PostgreSQL's, or that a server without resources sends. */
function notPostgres(hostname: string, response: Buffer): Error {
  const shown = escapeHidden(response.toString('latin1', 0, 80));
  const message = `sends "${shown}", which is not part of its protocol; is another program listening?`;
  return serverError(hostname, 'CONNECTION_REFUSED', message);
}
