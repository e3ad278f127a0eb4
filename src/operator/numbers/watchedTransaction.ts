/**
 * Transactions whose statements have no time limit, because they read all numbers, or wait for a lock or for input. So silence
 * alone does not tell that their connection was cut: it is looked for in PostgreSQL, on another connection.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Connection, type Isolation, type Transaction, withConnection } from '../../database/connection.js';
import { codeOf, failureOf, TOO_MANY_CONNECTIONS } from '../../database/errors.js';

/** Milliseconds of silence after which the connection is looked for in PostgreSQL. */
const SILENCE_MS = 5000;
/** How often in a row PostgreSQL does not work for this command before the connection counts as cut. */
const MAX_MISSES = 3;
const QUESTION_TIMEOUT_MS = 1000;

/** Awaits something that PostgreSQL does not send, such as input, during which the connection may be silent. */
export type Unwatched = <T>(work: PromiseLike<T>) => Promise<T>;

/**
 * Runs `work` in one transaction on a new connection, and ends it within 20 s if the connection is cut silently.
 * @param signal ends the transaction at once; the driver's error is then thrown
 */
export async function inWatchedTransaction<T>(
  url: string,
  isolation: Isolation,
  work: (sql: Transaction, unwatched: Unwatched) => Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  const connection = new Connection(url);
  const onAbort = () => void connection.close(0);
  signal?.addEventListener('abort', onAbort);
  const ended = new AbortController();
  let isWatched = true;
  const unwatched: Unwatched = async (waiting) => {
    isWatched = false;
    try {
      return await waiting;
    } finally {
      isWatched = true;
    }
  };
  try {
    signal?.throwIfAborted();
    return await Promise.race([
      connection.transaction(isolation, (sql) => work(sql, unwatched)),
      untilCut(url, connection, () => isWatched, ended.signal),
    ]);
  } finally {
    ended.abort();
    signal?.removeEventListener('abort', onAbort);
    await connection.close(0);
  }
}

/** Rejects once the connection was cut silently, or with an AbortError when `signal` is aborted. */
async function untilCut(
  url: string,
  connection: Connection,
  isWatched: () => boolean,
  signal: AbortSignal,
): Promise<never> {
  let received = connection.bytesRead;
  for (let misses = 0; misses < MAX_MISSES; ) {
    await sleep(SILENCE_MS, undefined, { signal });
    const isSilent = () => isWatched() && connection.bytesRead === received;
    const isMissed = isSilent() && !(await isWorking(url)) && isSilent();
    misses = isMissed ? misses + 1 : 0;
    received = connection.bytesRead;
  }
  throw Object.assign(new Error('the connection was cut silently'), { code: 'CONNECTION_CLOSED' });
}

/** Returns whether PostgreSQL runs a statement of this command, other than to exchange data with it. */
async function isWorking(url: string): Promise<boolean> {
  try {
    const find = (sql: Transaction) => sql`
        SELECT FROM pg_stat_activity
        WHERE application_name = current_setting('application_name') AND pid <> pg_backend_pid()
          AND state IN ('active', 'disabled') AND wait_event_type IS DISTINCT FROM 'Client'`;
    const ask = (connection: Connection) => connection.transaction('READ COMMITTED', find);
    return (await withConnection(url, ask, { statementTimeout: QUESTION_TIMEOUT_MS })).length > 0;
  } catch (error) {
    // Any other response, such as that there are too many connections, says nothing.
    return failureOf(error) !== 'unreachable' || codeOf(error) === TOO_MANY_CONNECTIONS;
  }
}
