/**
 * Writes many rows in steps: short transactions, so that no other program waits for long.
 *
 * # Locks
 *
 * A step first locks all rows that it changes, without waiting. Rows that another transaction holds are left for a
 * later step. Later waits of a step (for a unique key, or a term that another transaction has just added) time out
 * before the default deadlock_timeout; then the step is rolled back and retried. So a step resolves its deadlocks
 * itself, before PostgreSQL detects them and ends another program's transaction.
 *
 * # Time
 *
 * A step is as large as its estimated work. If one of its statements still takes too long, PostgreSQL cancels it, and the
 * step's halves are written one after the other. Only the last statement, in which an import spends most of the time, is
 * limited to the rest of the step's time. The time of round trips to a PostgreSQL that is far away is measured, and does
 * not count. If the command is suspended or cut off, PostgreSQL ends the transaction.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { reportBlockers, waitForBlockers } from '../../database/blockers.js';
import { Connection, type Transaction } from '../../database/connection.js';
import {
  CANCELED,
  causeOf,
  codeOf,
  failureOf,
  isFailover,
  LOCK_FAILED,
  TOO_MANY_CONNECTIONS,
} from '../../database/errors.js';
import { retryInOutage } from '../../database/outage.js';
import { countOf } from '../../messages/count.js';
import { UserError } from '../../userError.js';
import { keyOf, type Row, workOf } from './rows.js';
import type { Spool } from './spool.js';

/** How the rows of a spool are locked and written. */
export interface Steps {
  /**
   * Locks the existing rows with these keys.
   * @param wait whether to wait for rows that another transaction holds
   * @returns the keys of rows that another transaction holds
   */
  lockOrListBusy(sql: Transaction, keys: string[], wait: boolean): Promise<{ key: string }[]>;
  /**
   * Writes rows that are locked or don't exist. Called again with the same rows if the outcome of a commit is unknown.
   * @returns the keys of the rows that had to be changed
   */
  write(sql: Transaction, rows: Row[]): Promise<string[]>;
  /** Called after each commit with the number of rows written, and the keys of those that had to be changed. */
  onWritten?(count: number, changed: string[]): void;
}

interface Options {
  /** The number of connections that write at once. */
  jobs?: number;
  /** Ends the work after the current steps; its reason is then thrown. */
  signal?: AbortSignal | undefined;
}

/** The target duration of a step in milliseconds. */
const STEP_MS = 250;
/** The time limit of each statement of a step of several rows, for the last one from the step's start, in milliseconds. */
const MAX_STEP_MS = 400;
/** The same for a step of one row. A connection that stays silent for longer is replaced. */
const STATEMENT_TIMEOUT_MS = 15_000;
/** The work of the first step, and bounds of later ones. */
const FIRST_WORK = 2500;
const MAX_WORK = 12_500;
const MIN_WORK = 500;
/** The longest wait for a lock in milliseconds. With `MAX_STEP_MS`, it is less than the default deadlock_timeout, 1 s. */
const LOCK_TIMEOUT_MS = 100;
/** The work of postponed rows, which are in memory, above which no new rows are taken. */
const MAX_POSTPONED_WORK = 5 * MAX_WORK;
/** Milliseconds without progress after which blockers are reported. */
const REPORT_BLOCKERS_AFTER_MS = 3000;
/** How long the current steps may take after the signal, in milliseconds, even if their connection is dead. */
const STOP_MS = 2000;
/**
 * How long to retry while PostgreSQL restarts or fails over, in milliseconds (with Patroni, a failover takes 20 s or
 * more).
 */
export const OUTAGE_MS = 60_000;
export const RETRY_INTERVAL_MS = 250;
/** The most conflicts of the same rows with concurrent writes of other programs. */
const MAX_CONFLICTS = 20;

/** The databases of commands that have reported their blockers: once is enough. */
const blocked = new Set<string>();

/** Settings of a step's transaction: PostgreSQL ends it if the command is suspended, or its connection is dead. */
const SETTINGS = [`lock_timeout = ${LOCK_TIMEOUT_MS}`, 'idle_in_transaction_session_timeout = 5000']
  .map((setting) => `SET LOCAL ${setting}`)
  .join(';');

/**
 * PostgreSQL's codes for a serialization failure, and for unique and foreign key violations: caused by concurrent
 * writes.
 */
const CONFLICT = /^(40001|23503|23505)$/;

/** Rows to write in one transaction. */
interface Step {
  rows: Row[];
  conflicts: number;
}

const workOfAll = (rows: readonly Row[]) => rows.reduce((sum, row) => sum + workOf(row), 0);

/**
 * Writes all rows of a spool in steps. Retries rows that can't be locked for as long as it takes.
 * @throws the first error that no retry helps against, or the reason of `signal`; written rows stay
 */
export async function runSteps(
  url: string,
  spool: Spool,
  steps: Steps,
  { jobs = 1, signal }: Options = {},
): Promise<void> {
  const postponed: Step[] = [];
  const open = new Set<Connection>();
  const end = new AbortController();
  let lastProgress = performance.now();

  /** Returns the next step: new rows of at most `work`, or postponed ones if there are many of them or no new rows. */
  function next(work: number): Step | undefined {
    signal?.throwIfAborted();
    end.signal.throwIfAborted();
    const isFull = postponed.reduce((sum, { rows }) => sum + workOfAll(rows), 0) > MAX_POSTPONED_WORK;
    const rows = isFull ? [] : spool.take(work);
    return rows.length > 0 ? { rows, conflicts: 0 } : postponed.shift();
  }

  /**
   * Locks and writes rows in a transaction.
   * @param overheadMs what a step without rows takes, in milliseconds
   * @param wait whether to wait for rows that another transaction holds
   * @returns the rows that another transaction holds, which are not written
   */
  async function write(connection: Connection, rows: Row[], overheadMs = 0, wait = false): Promise<Row[]> {
    const maxMs = rows.length > 1 ? MAX_STEP_MS : STATEMENT_TIMEOUT_MS;
    const { busy, changed } = await connection.transaction('READ COMMITTED', async (sql) => {
      const [, list] = await Promise.all([
        sql.unsafe(`${SETTINGS}; SET LOCAL statement_timeout = ${maxMs}`),
        steps.lockOrListBusy(sql, rows.map(keyOf), wait),
      ]);
      const busy = new Set(list.map(({ key }) => key));
      const changed = await steps.write(
        sql,
        rows.filter((row) => !busy.has(keyOf(row))),
      );
      // Derives what was deferred. A commit would do so without a time limit.
      await Promise.all([limitToRest(sql, maxMs, overheadMs), sql`SET CONSTRAINTS ALL IMMEDIATE`]);
      return { busy, changed };
    });
    if (busy.size < rows.length) {
      lastProgress = performance.now();
      steps.onWritten?.(rows.length - busy.size, changed);
    }
    return rows.filter((row) => busy.has(keyOf(row)));
  }

  /**
   * Prepares the statements of a new connection by steps without rows. Otherwise PostgreSQL would wait for the parameters of
   * each while the step holds locks, and does not end a transaction that waits for them.
   * @returns what such a step takes, in milliseconds: its round trips, so most of a step's time if PostgreSQL is far away
   */
  async function prepare(connection: Connection): Promise<number> {
    for (const wait of [false, true]) await write(connection, [], 0, wait);
    const start = performance.now();
    await write(connection, []);
    return performance.now() - start;
  }

  /** Writes the rows that are free, or waits for one of them if none is. Returns the rows that are not written. */
  async function writeStep(connection: Connection, rows: Row[], overheadMs: number): Promise<Row[]> {
    const busy = await write(connection, rows, overheadMs);
    if (busy.length < rows.length) return busy;
    // Waits in a transaction without other locks, so that it blocks no other program.
    const [first, ...rest] = busy as [Row, ...Row[]];
    return [...rest, ...(await write(connection, [first], overheadMs, true))];
  }

  /** Returns the steps that retry a failed one. @throws its error if no retry helps */
  function retriesOf(step: Step, error: unknown): Step[] {
    const code = codeOf(causeOf(error));
    const middle = step.rows.length >> 1;
    if (code === CANCELED && middle > 0) {
      return [step.rows.slice(0, middle), step.rows.slice(middle)].map((rows) => ({ rows, conflicts: 0 }));
    }
    const isConflict = CONFLICT.test(code) && step.conflicts++ < MAX_CONFLICTS;
    if (isConflict || LOCK_FAILED.test(code) || isFailover(failureOf(error))) return [step];
    throw error;
  }

  /** Runs steps on one connection, which it replaces after an error, until none is left. */
  async function runOn(opened: Connection): Promise<void> {
    let connection: Connection | undefined = opened;
    let overheadMs: number | undefined;
    let maxWork = FIRST_WORK;
    const outage = new Outage();
    try {
      for (let step = next(maxWork); step !== undefined; step = next(maxWork)) {
        let start = performance.now();
        try {
          connection ??= connect(url);
          open.add(connection);
          overheadMs ??= await prepare(connection);
          start = performance.now();
          const rows = await writeStep(connection, step.rows, overheadMs);
          outage.end();
          if (rows.length > 0) postponed.push({ rows, conflicts: 0 });
          else maxWork = nextMaxWork(maxWork, workOfAll(step.rows), performance.now() - start - overheadMs);
        } catch (error) {
          if (connection) open.delete(connection);
          [connection, overheadMs] = [undefined, undefined];
          const retries = retriesOf(step, error);
          postponed.push(...retries);
          maxWork = Math.max(maxWork / retries.length, MIN_WORK);
          if (isFailover(failureOf(error))) await outage.wait(error, start);
          else outage.end();
          // Random, so that two programs that collided don't collide again.
          await sleep(Math.random() * LOCK_TIMEOUT_MS);
        }
      }
    } catch (error) {
      end.abort(error);
    } finally {
      await connection?.close(0);
    }
  }

  const connections = await retryInOutage(() => openConnections(url, jobs), {
    forMs: OUTAGE_MS,
    everyMs: RETRY_INTERVAL_MS,
    signal,
  });
  const isBlocked = () => performance.now() - lastProgress > REPORT_BLOCKERS_AFTER_MS;
  if (!blocked.has(url)) {
    waitForBlockers(url, isBlocked, end.signal).then(
      (blockers) => {
        blocked.add(url);
        reportBlockers(blockers);
      },
      () => {},
    );
  }
  const closeAll = () => open.forEach((connection) => void connection.close(0));
  const onSignal = () => setTimeout(closeAll, STOP_MS).unref();
  signal?.addEventListener('abort', onSignal);
  await Promise.all(connections.map(runOn));
  signal?.removeEventListener('abort', onSignal);
  end.signal.throwIfAborted();
  end.abort();
}

/** Limits the next statement to the rest of a step's time, in which `overheadMs` of round trips do not count. */
const limitToRest = (sql: Transaction, maxMs: number, overheadMs: number) => sql`
  SELECT set_config('statement_timeout', least(${maxMs}, greatest(1, ${Math.round(maxMs + overheadMs)} - ms))::int::text, true)
  FROM (SELECT extract(epoch FROM clock_timestamp() - transaction_timestamp()) * 1000 AS ms) AS step`;

/** A time in which PostgreSQL can't be reached or accepts no writes, such as a failover. */
class Outage {
  #since: number | undefined;

  /**
   * Waits before the next attempt, after one that began at `start` has failed.
   * @throws the error if the outage has lasted for too long
   */
  async wait(error: unknown, start: number): Promise<void> {
    this.#since ??= start;
    if (performance.now() - this.#since > OUTAGE_MS) throw error;
    await sleep(RETRY_INTERVAL_MS);
  }

  end(): void {
    this.#since = undefined;
  }
}

/**
 * Opens the connections of all jobs before any of them writes.
 * @throws {UserError} if PostgreSQL has fewer connections left; none is taken then, since other programs need them
 */
async function openConnections(url: string, jobs: number): Promise<Connection[]> {
  const first = connect(url);
  const opened = [first];
  try {
    const [{ free }] = await first.transaction(
      'READ COMMITTED',
      (sql) => sql<[{ free: number }]>`
        SELECT greatest(0, current_setting('max_connections')::int
          - current_setting('superuser_reserved_connections')::int - count(*)::int) AS free
        FROM pg_stat_activity WHERE datid IS NOT NULL`,
    );
    if (jobs - 1 > free) throw tooManyJobs(jobs, free + 1);
    const others = Array.from({ length: jobs - 1 }, async () => opened.push(await connect(url).open()));
    for (const other of await Promise.allSettled(others)) if (other.status === 'rejected') throw other.reason;
    return opened;
  } catch (error) {
    await Promise.all(opened.map((connection) => connection.close(0)));
    // The role may have its own limit.
    throw codeOf(causeOf(error)) === TOO_MANY_CONNECTIONS ? tooManyJobs(jobs, opened.length) : error;
  }
}

const connect = (url: string) => new Connection(url, { statementTimeout: STATEMENT_TIMEOUT_MS });

const tooManyJobs = (jobs: number, free: number) =>
  new UserError(
    `PostgreSQL has ${countOf(free, 'free connection')}, but --jobs is ${jobs}: use fewer jobs, or raise max_connections`,
  );

/**
 * Returns the most work of the next step, after one of at most `max` that had `work`, for which it took `ms` milliseconds.
 */
function nextMaxWork(max: number, work: number, ms: number): number {
  return Math.min(Math.max((work * STEP_MS) / Math.max(ms, 1), max / 2, MIN_WORK), max * 2, MAX_WORK);
}
