/**
 * Writes many rows in steps: short transactions, so that no other program waits for long.
 *
 * A step first locks all rows that it changes, without waiting. Rows that another transaction holds are left for a
 * later step. Later waits of a step (for a unique key, or a term that another transaction has just added) time
 * out well below the server's deadlock_timeout; then the step is rolled back and retried. So a step resolves its
 * deadlocks itself, before PostgreSQL detects them and ends another program's transaction.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Database } from '../../database/connect.js';
import { causeOf, codeOf, failureOf, isFailover, TOO_MANY_CONNECTIONS } from '../../database/errors.js';
import { type Isolation, openSession, type Session, type Transaction } from '../../database/transaction.js';
import { UserError } from '../../userError.js';
import { reportBlockers } from './blockers.js';

/** A row to be written: its columns as text, separated by tabs; the first is the primary key, an empty one is null. */
export type Row = string;

/** Returns the primary key of a row, by which it is locked. */
export function keyOf(row: Row): string {
  const end = row.indexOf('\t');
  return end < 0 ? row : row.slice(0, end);
}

/** Returns a FROM item with the array `columns` of each row. */
export const columnsOf = (sql: Transaction, rows: Row[]) => sql`(
  SELECT string_to_array(row, E'\\t', '') AS columns FROM string_to_table(${rows.join('\n')}, E'\\n') AS row OFFSET 0
) AS given_rows`;

/** The work of the steps. */
export interface Steps {
  /** The isolation of their transactions; READ COMMITTED if omitted. */
  isolation?: Isolation;
  /** Returns the next rows, at most `count`; none at the end. */
  take(count: number): Row[] | Promise<Row[]>;
  /**
   * Locks the existing rows with these keys.
   * @param wait whether to wait for rows that another transaction holds
   * @returns the keys of rows that another transaction holds
   */
  lock(sql: Transaction, keys: string[], wait: boolean): Promise<{ key: string }[]>;
  /**
   * Writes rows that are locked or don't exist. Called again with the same rows if the outcome of a commit is unknown.
   */
  write(sql: Transaction, rows: Row[]): Promise<void>;
  /** Called after each commit with the number of rows written. */
  onWritten?(count: number): void;
}

interface Options {
  /** The number of connections that write at once. */
  jobs?: number;
  /** Ends the work after the current steps; its reason is then thrown. */
  signal?: AbortSignal | undefined;
}

/** The target duration of a step in milliseconds. */
const STEP_MS = 300;
/** Rows in the first step, and bounds of later ones. */
const FIRST_SIZE = 200;
const MAX_SIZE = 1000;
const MIN_SIZE = 50;
/** The longest wait for a lock in milliseconds, unless a quarter of deadlock_timeout is less. */
const LOCK_TIMEOUT_MS = 100;
/** Postponed rows in memory above which no new rows are taken. */
const MAX_POSTPONED = 5000;
/** Milliseconds without progress after which blockers are reported. */
const REPORT_BLOCKERS_AFTER_MS = 3000;
/** Milliseconds into a step when its blockers are looked up: it is then waiting. */
const LOOK_UP_AFTER_MS = 30;
/** Milliseconds after which PostgreSQL cancels a statement; a connection that stays silent for longer is replaced. */
const STATEMENT_TIMEOUT_MS = 30_000;
/**
 * How long to retry while PostgreSQL restarts or fails over, in milliseconds (with Patroni, a failover takes 20 s or
 * more).
 */
const RECONNECT_MS = 60_000;
const RECONNECT_DELAY_MS = 250;
/** The most conflicts of the same rows with concurrent writes of other programs. */
const MAX_CONFLICTS = 20;

/** PostgreSQL's codes for a lock timeout and a deadlock. */
const LOCK_FAILED = /^(55P03|40P01)$/;
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

/**
 * Runs steps until no rows are left. Retries rows that can't be locked for as long as it takes.
 * @throws the first error that no retry helps against, or the reason of `signal`; written rows stay
 */
export async function runSteps(database: Database, steps: Steps, { jobs = 1, signal }: Options = {}): Promise<void> {
  const postponed: Step[] = [];
  const failure = new AbortController();
  let lastProgress = performance.now();

  /** Returns the next step: new rows, or postponed ones if there are too many or no others. */
  async function next(size: number): Promise<Step | undefined> {
    signal?.throwIfAborted();
    failure.signal.throwIfAborted();
    const isFull = postponed.reduce((sum, { rows }) => sum + rows.length, 0) > MAX_POSTPONED;
    const rows = isFull ? [] : await steps.take(size);
    return rows.length > 0 ? { rows, conflicts: 0 } : postponed.shift();
  }

  /** Writes rows in a transaction. Returns the rows that another transaction holds, which are not written. */
  async function write(session: Session, rows: Row[], wait = false): Promise<Row[]> {
    let lookUp: NodeJS.Timeout | undefined;
    try {
      const busy = await session.transaction(steps.isolation ?? 'READ COMMITTED', async (sql) => {
        await sql`
          SELECT set_config('lock_timeout', greatest(1, least(${LOCK_TIMEOUT_MS}, setting::int / 4)) || 'ms', true)
          FROM pg_settings WHERE name = 'deadlock_timeout'`;
        if (performance.now() - lastProgress > REPORT_BLOCKERS_AFTER_MS) {
          const [{ pid }] = await sql<[{ pid: number }]>`SELECT pg_backend_pid() AS pid`;
          // Best effort: a failed lookup is ignored.
          lookUp = setTimeout(() => reportBlockers(database, pid).catch(() => {}), LOOK_UP_AFTER_MS);
        }
        const keys = rows.map(keyOf);
        const busy = new Set((await steps.lock(sql, keys, wait)).map(({ key }) => key));
        const free = rows.filter((row) => !busy.has(keyOf(row)));
        if (free.length > 0) await steps.write(sql, free);
        return busy;
      });
      if (busy.size < rows.length) {
        lastProgress = performance.now();
        steps.onWritten?.(rows.length - busy.size);
      }
      return rows.filter((row) => busy.has(keyOf(row)));
    } finally {
      clearTimeout(lookUp);
    }
  }

  /**
   * Writes the rows of a step that are free, or waits for one of them if none is. Returns the rows that are not
   * written.
   */
  async function writeStep(session: Session, rows: Row[]): Promise<Row[]> {
    const busy = await write(session, rows);
    if (busy.length < rows.length) return busy;
    // Waits in a transaction without other locks, so that it blocks no other program.
    const [first, ...rest] = busy as [Row, ...Row[]];
    return [...rest, ...(await write(session, [first], true))];
  }

  /** Runs steps on one connection, which it replaces after an error. */
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
          if (rows.length > 0) postponed.push({ rows, conflicts: 0 });
          else if (step.rows.length === size) size = nextSize(size, performance.now() - start);
        } catch (error) {
          session = undefined;
          const code = codeOf(causeOf(error));
          if (isFailover(failureOf(error))) {
            unreachableSince ??= start;
            if (performance.now() - unreachableSince > RECONNECT_MS) throw error;
            await sleep(RECONNECT_DELAY_MS);
          } else {
            unreachableSince = undefined;
            if (!LOCK_FAILED.test(code) && !(CONFLICT.test(code) && step.conflicts++ < MAX_CONFLICTS)) throw error;
          }
          postponed.push(step);
          // Random, so that two programs that collided don't collide again.
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

/**
 * Opens the sessions of all jobs before any of them writes.
 * @throws {UserError} if PostgreSQL has fewer connections left; none is taken then, since other programs need them
 */
async function openSessions(database: Database, jobs: number): Promise<Session[]> {
  const [{ free }] = await database.$client<[{ free: number }]>`
    SELECT greatest(0, current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
      - count(*)::int) AS free
    FROM pg_stat_activity WHERE datid IS NOT NULL`;
  if (jobs > 1 && jobs > free) throw tooManyJobs(jobs, free);
  const opening = await Promise.allSettled(
    Array.from({ length: jobs }, () => openSession(database, STATEMENT_TIMEOUT_MS)),
  );
  const sessions = opening.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  const failures = opening.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []));
  if (failures.length === 0) return sessions;
  await Promise.all(sessions.map(({ close }) => close()));
  // The role may have a limit of its own.
  const isFull = failures.some((failure) => codeOf(causeOf(failure)) === TOO_MANY_CONNECTIONS);
  throw jobs > 1 && isFull ? tooManyJobs(jobs, sessions.length) : failures[0];
}

const tooManyJobs = (jobs: number, free: number) =>
  new UserError(
    `PostgreSQL has ${free} free connections, but --jobs is ${jobs}: use fewer jobs, or raise max_connections`,
  );

/** Returns the size of the next step, after one of `size` rows that took `ms` milliseconds. */
function nextSize(size: number, ms: number): number {
  return Math.round(Math.min(Math.max((size * STEP_MS) / ms, size / 2, MIN_SIZE), size * 2, MAX_SIZE));
}
