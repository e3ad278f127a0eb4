/**
 * The sockets of a client's connections, and how a dead one is found. postgres.js waits forever on a connection that was cut
 * silently. But PostgreSQL cancels a statement at its time limit, so a socket that was asked something and stays silent for
 * longer is dead, and probably the others, too: all are cut, and what waited on them can be asked again.
 */
import { Socket } from 'node:net';
import type { Address } from './address.js';
import { onOtherAuthentication } from './authentication.js';

const CHECK_INTERVAL_MS = 100;
/** What a server and a network may add to a statement's time limit. */
const ANSWER_MARGIN_MS = 500;
/** A server's answer that refuses TLS: N. */
const NO_TLS = 0x4e;
/** How long the connections of a closed client may take to end on their own. */
const CLOSE_TIMEOUT_MS = 200;

/** What the checks have seen of a socket. */
interface Seen {
  read: number;
  written: number;
  /** Whether it owes an answer: perhaps, where bytes came and went between two checks. */
  owes: 'nothing' | 'perhaps' | 'an answer';
  /** Checks since it was read, or asked. */
  silentChecks: number;
}

/**
 * The sockets of a client to one host, whose statements PostgreSQL cancels after `statementTimeout` milliseconds; with 0,
 * none is ever taken for dead.
 */
export function createSockets({ hostname, place, requiresScram, options }: Address, statementTimeout: number) {
  const sockets = new Map<Socket, Seen>();
  const answerLimitMs = statementTimeout + ANSWER_MARGIN_MS;
  const maxSilentChecks = answerLimitMs / CHECK_INTERVAL_MS;
  const checks = statementTimeout > 0 ? setInterval(check, CHECK_INTERVAL_MS).unref() : undefined;
  let isClosed = false;

  /** Counts checks, not time: after a stall of this process, an answer may have come that was not read yet. */
  function check(): void {
    for (const [{ bytesRead: read, bytesWritten: written }, seen] of sockets) {
      const isAsked = written > seen.written;
      if (read > seen.read) Object.assign(seen, { owes: isAsked ? 'perhaps' : 'nothing', silentChecks: 0 });
      else if (isAsked && seen.owes !== 'an answer') Object.assign(seen, { owes: 'an answer', silentChecks: 0 });
      else seen.silentChecks++;
      Object.assign(seen, { read, written });
    }
    if (isAnySilent('an answer')) reconnect();
  }

  function isAnySilent(...owing: Seen['owes'][]): boolean {
    return [...sockets].some(
      ([{ destroyed }, { owes, silentChecks }]) =>
        !destroyed && silentChecks >= maxSilentChecks && owing.includes(owes),
    );
  }

  /** What was sent is rejected with CONNECTION_CLOSED, and the next statement opens new connections. */
  function reconnect(): void {
    for (const socket of sockets.keys()) socket.destroy();
  }

  const end = (socket: Socket, code: string, message: string) =>
    socket.destroy(Object.assign(new Error(`PostgreSQL at ${hostname} ${message}`), { code }));

  return {
    /** Milliseconds after which an answer is overdue. */
    answerLimitMs,
    /** Opens a socket, as postgres.js expects of its option `socket`. */
    async open(): Promise<Socket> {
      const socket = new Socket().setNoDelay(true);
      // No listener tells which ones have closed: for TLS, postgres.js removes them all.
      for (const old of sockets.keys()) if (old.destroyed) sockets.delete(old);
      sockets.set(socket, { read: 0, written: 0, owes: 'nothing', silentChecks: 0 });
      // postgres.js waits before it connects again only where the last connection ended with an error.
      socket.once('end', () => {
        if (socket.bytesRead === 0) end(socket, 'CONNECTION_CLOSED', 'closes its connections without an answer');
      });
      // postgres.js would send any server the password in the form that it requests, clear text included.
      if (requiresScram) {
        onOtherAuthentication(socket, () =>
          end(
            socket,
            'SCRAM_NOT_OFFERED',
            'does not authenticate by SCRAM, which require_auth in DATABASE_URL demands',
          ),
        );
      }
      // postgres.js would begin TLS regardless.
      if ('ssl' in options && typeof options.ssl === 'object') {
        socket.once('data', ([answer]: Buffer) => {
          if (answer !== NO_TLS) return;
          end(socket, 'TLS_NOT_OFFERED', 'offers no TLS, which sslmode in DATABASE_URL asks for');
        });
      }
      if (isClosed) setImmediate(() => socket.destroy());
      else socket.connect(place);
      return Object.assign(socket, { host: hostname });
    },
    reconnect,
    /** To be called while an answer is overdue: then it may be at a socket that perhaps owes one. */
    overdue(): void {
      if (isAnySilent('an answer', 'perhaps')) reconnect();
    },
    /** Destroys what is still open, soon after the client was ended: at once, TLS would emit an error that nobody handles. */
    close(): void {
      isClosed = true;
      clearInterval(checks);
      setTimeout(reconnect, CLOSE_TIMEOUT_MS).unref();
    },
  };
}
