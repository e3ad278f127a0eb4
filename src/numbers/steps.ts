/**
 * Writes many rows in steps: short transactions, so that no other program waits for long.
 *
 * A step locks all rows that it changes at its beginning, without waiting: rows that another transaction holds are left for
 * a later step. What a step waits for after that (a unique key, a term that another transaction has just added) is bounded
 * well below the server's deadlock_timeout; then the step gives way and is tried again. So no deadlock that a step takes
 * part in lasts until PostgreSQL ends somebody's transaction for it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Database } from '../database/connect.js';
import { causeOf, codeOf, isConnectionBroken, TOO_MANY_CONNECTIONS } from '../database/errors.js';
import { openSession, type Session, type Transaction } from '../database/transaction.js';
import { UserError } from '../userError.js';
import { reportBlockers } from './blockers.js';

/** A row to be written. */
export interface Row {
  /** What it is locked by: its primary key. */
  key: string;
  /** Its columns. */
  json: string;
}

/** What the steps do. */
export interface Steps {
  /** Takes the next rows, at most `count`; none at the end. */
  take(count: number): Row[] | Promise<Row[]>;
  /**
   * Locks the rows with these keys that exist.
   * @param waits whether to wait for other transactions
   * @returns the keys of rows that another transaction holds
   */
  lock(sql: Transaction, keys: string[], waits: boolean): Promise<{ key: string }[]>;
  /** Writes rows that are locked or don't exist. The same rows may come again if it is unknown whether they were written. */
  write(sql: Transaction, rows: Row[]): Promise<void>;
  /** Is called with how many rows have been written. */
  onWritten?(count: number): void;
}

interface Options {
  /** Connections at once. */
  jobs?: number;
  /** Ends the work after the steps that are running; then its reason is thrown. */
  signal?: AbortSignal | undefined;
}

/** Milliseconds that a step should take, and how many rows it has at first and at most. */
const STEP_MS = 200;
const FIRST_SIZE = 200;
const MAX_SIZE = 1000;
const MIN_SIZE = 20;
/** Milliseconds that a step waits for a lock, if a quarter of deadlock_timeout is not less. */
const LOCK_TIMEOUT_MS = 100;
/** Rows in memory that were left for later. */
const MAX_LEFT = 5000;
/** Milliseconds without any progress until the command says what it waits for, and into a wait when it asks. */
const PATIENCE_MS = 3000;
const ASK_AFTER_MS = 30;
/** PostgreSQL cancels a statement of a step after this time, and a connection that is silent for longer is replaced. */
const STATEMENT_TIMEOUT_MS = 30_000;
/** How long to try to reach a PostgreSQL that restarts, or whose replica takes over (Patroni's least is 20 s). */
const RECONNECT_MS = 60_000;
const RECONNECT_DELAY_MS = 250;
/** How often the same rows may meet what somebody else has just written. */
const MAX_CONFLICTS = 20;

/** Lock not available, deadlock. */
const GIVES_WAY = /^(55P03|40P01)$/;
/** Serialization failure, unique or foreign key violation: somebody else has written since the rows were looked up. */
const CONFLICT = /^(40001|23503|23505)$/;
/** The connection leads to a server that became a replica. */
const READ_ONLY = '25006';

interface Step {
  rows: Row[];
  conflicts: number;
}

/**
 * Runs steps until there are no more rows. A row that can't be locked is tried until it can.
 * @throws the first error that another try does not mend, or the reason of `signal`; what was written by then stays
 */
export async function runSteps(database: Database, steps: Steps, { jobs = 1, signal }: Options = {}): Promise<void> {
  const left: Step[] = [];
  const failure = new AbortController();
  let lastProgress = performance.now();

  async function next(size: number): Promise<Step | undefined> {
    signal?.throwIfAborted();
    failure.signal.throwIfAborted();
    const isTooMuchLeft = left.reduce((sum, { rows }) => sum + rows.length, 0) > MAX_LEFT;
    const rows = isTooMuchLeft ? [] : await steps.take(size);
    return rows.length > 0 ? { rows, conflicts: 0 } : left.shift();
  }

  /** Writes rows in a transaction. Returns those that were left, since another transaction holds them. */
  async function write(session: Session, rows: Row[], waits = false): Promise<Row[]> {
    let asking: NodeJS.Timeout | undefined;
    try {
      const busy = await session.transaction('READ COMMITTED', async (sql) => {
        await sql`
          SELECT set_config('lock_timeout', greatest(1, least(${LOCK_TIMEOUT_MS}, setting::int / 4)) || 'ms', true)
          FROM pg_settings WHERE name = 'deadlock_timeout'`;
        if (performance.now() - lastProgress > PATIENCE_MS) {
          const [{ pid }] = await sql<[{ pid: number }]>`SELECT pg_backend_pid() AS pid`;
          // If they can't be found out, nothing is reported.
          asking = setTimeout(() => reportBlockers(database, pid).catch(() => {}), ASK_AFTER_MS);
        }
        const keys = rows.map(({ key }) => key);
        const busy = new Set((await steps.lock(sql, keys, waits)).map(({ key }) => key));
        const free = rows.filter(({ key }) => !busy.has(key));
        if (free.length > 0) await steps.write(sql, free);
        return busy;
      });
      if (busy.size < rows.length) {
        lastProgress = performance.now();
        steps.onWritten?.(rows.length - busy.size);
      }
      return rows.filter(({ key }) => busy.has(key));
    } finally {
      clearTimeout(asking);
    }
  }

  /** Writes a step's rows, or at least one of them. Returns those that were left. */
  async function writeStep(session: Session, rows: Row[]): Promise<Row[]> {
    const busy = await write(session, rows);
    if (busy.length < rows.length) return busy;
    // Waits for one row, while it holds nothing that others could wait for.
    const [first, ...rest] = busy as [Row, ...Row[]];
    return [...rest, ...(await write(session, [first], true))];
  }

  async function work(opened: Session): Promise<void> {
    let session: Session | undefined = opened;
    let size = FIRST_SIZE;
    let unreachableSince: number | undefined;
    try {
      for (let step = await next(size); step !== undefined; step = await next(size)) {
        const start = performance.now();
        try {
          session ??= await openSession(database, STATEMENT_TIMEOUT_MS);
          const rows = await writeStep(session, step.rows);
          unreachableSince = undefined;
          if (rows.length > 0) left.push({ rows, conflicts: 0 });
          else if (step.rows.length === size) size = nextSize(size, performance.now() - start);
        } catch (error) {
          session = undefined;
          const code = codeOf(causeOf(error));
          if (isConnectionBroken(error) || code === READ_ONLY) {
            unreachableSince ??= start;
            if (performance.now() - unreachableSince > RECONNECT_MS) throw error;
            await sleep(RECONNECT_DELAY_MS);
          } else {
            unreachableSince = undefined;
            if (!GIVES_WAY.test(code) && !(CONFLICT.test(code) && step.conflicts++ < MAX_CONFLICTS)) throw error;
          }
          left.push(step);
          // Not in step with whom it met.
          await sleep(Math.random() * LOCK_TIMEOUT_MS);
        }
      }
    } catch (error) {
      failure.abort(error);
    } finally {
      await session?.close();
    }
  }

  const sessions = await openSessions(database, jobs);
  await Promise.all(sessions.map(work));
  failure.signal.throwIfAborted();
}

/** Opens the sessions of all jobs before any of them writes. */
async function openSessions(database: Database, jobs: number): Promise<Session[]> {
  const opening = await Promise.allSettled(
    Array.from({ length: jobs }, () => openSession(database, STATEMENT_TIMEOUT_MS)),
  );
  const sessions = opening.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
  const failed = opening.find((each) => each.status === 'rejected');
  if (!failed) return sessions;
  await Promise.all(sessions.map(({ close }) => close()));
  if (jobs === 1 || codeOf(causeOf(failed.reason)) !== TOO_MANY_CONNECTIONS) throw failed.reason;
  throw new UserError(
    `PostgreSQL has ${sessions.length} connections left for --jobs ${jobs}: use fewer jobs, or raise its max_connections`,
  );
}

/** The size of the step after one that took `ms` milliseconds. */
function nextSize(size: number, ms: number): number {
  return Math.round(Math.min(Math.max((size * STEP_MS) / ms, size / 2, MIN_SIZE), size * 2, MAX_SIZE));
}
