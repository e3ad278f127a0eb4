/**
 * Writes many rows in steps: short transactions, so that no other program waits for long.
 *
 * A step's rows are sent first. Then one message has all its statements: they lock the rows, write them, derive what was
 * deferred, and commit. So locks are held only while PostgreSQL works, however far away it is, and even if this process is
 * suspended or cut off.
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
 * A step is as large as its estimated work. Each statement is limited to the rest of the step's time, by PostgreSQL's clock.
 * If that is too short, PostgreSQL cancels the step, and its halves are written one after the other.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Fragment } from 'postgres';
import { cancelSessions, watchingWaits } from '../../database/blockers.js';
import { Connection, type Transaction } from '../../database/connection.js';
import { CANCELED, causeOf, codeOf, failureOf, isFailover, TOO_MANY_CONNECTIONS } from '../../database/errors.js';
import { retryInOutage } from '../../database/outage.js';
import { give, keyOf, type Row, requireGiven, workOf } from './rows.js';
import type { Spool } from './spool.js';

/** How the rows of a spool are locked and written, by statements that find them with `givenRows` and `givenKeys`. */
export interface Steps {
  /**
   * Returns statements that lock the rows that exist, made by `lockGiven`.
   * @param waits whether to wait for rows that another transaction holds
   */
  lock(sql: Transaction, waits: boolean): Fragment[];
  /**
   * Returns statements that write rows that are locked or don't exist. They run again with the same rows if the outcome of a
   * commit is unknown. Their results have the keys of the rows that had to be changed as the column `key`.
   */
  write(sql: Transaction): Fragment[];
  /** How a step ends; by default it is committed. */
  end?: 'COMMIT' | 'ROLLBACK';
  /** Whether the changed keys must be complete even if a commit was not confirmed, at the price of a round trip for each step. */
  countsChanges?: boolean;
  /** Called after each step with its rows, and the keys of those that had to be changed. */
  onWritten?(rows: Row[], changed: string[]): void;
}

export interface Options {
  /** The number of connections that write at once. */
  jobs?: number;
  /** Ends the work after the current steps; its reason is then thrown. */
  signal?: AbortSignal | undefined;
}

/** The target duration of a step. */
const STEP_MS = 200;
const MAX_STEP_MS = 400;
/** The time limit of a step of one row, unless it waits for that row. */
const MAX_ROW_MS = 15_000;
/** The work of the first step, and bounds of later ones. */
const FIRST_WORK = 2500;
const MAX_WORK = 12_500;
const MIN_WORK = 500;
/** The longest wait for a lock in milliseconds. With `MAX_STEP_MS`, it is less than the default deadlock_timeout, 1 s. */
const LOCK_TIMEOUT_MS = 100;
/** The work of postponed rows, which are in memory, above which no new rows are taken. */
const MAX_POSTPONED_WORK = 5 * MAX_WORK;
const REPORT_BLOCKERS_AFTER_MS = 3000;
/** How long the current steps may take after the signal, in milliseconds; halfway, they are canceled. */
const STOP_MS = 2000;
/** How long to retry while PostgreSQL restarts or fails over. With Patroni, a failover takes 20 s or more. */
export const OUTAGE = { forMs: 60_000, everyMs: 250 };
/** The longest pause after a failure. It is random, so that two programs that collided don't collide again. */
const PAUSE_MS = 200;
/** The most conflicts of the same rows with concurrent writes of other programs. */
const MAX_CONFLICTS = 20;
/** How many conflicts a failure counts for, by PostgreSQL's code. No retry helps against others. */
const CONFLICTS: Readonly<Record<string, number>> = {
  // A lock timeout and a deadlock: retried for as long as it takes.
  '55P03': 0,
  '40P01': 0,
  // A serialization failure, and violations of foreign and unique keys: caused by concurrent writes.
  40001: 1,
  23503: 1,
  23505: 1,
  // One row may have taken 15 s.
  [CANCELED]: 5,
};

interface Step {
  rows: Row[];
  conflicts: number;
  /** Whether to wait for rows that another transaction holds. */
  waits: boolean;
}

const workOfAll = (rows: readonly Row[]) => rows.reduce((sum, row) => sum + workOf(row), 0);

class StepQueue {
  readonly #spool: Spool;
  readonly #postponed: Step[] = [];

  constructor(spool: Spool) {
    this.#spool = spool;
  }

  get isEmpty(): boolean {
    return this.#postponed.length === 0 && this.#spool.isEmpty;
  }

  /** Returns the next step: new rows of at most `work`, or postponed ones if there are many of them or no new rows. */
  next(work: number): Step | undefined {
    const isFull = this.#postponed.reduce((sum, { rows }) => sum + workOfAll(rows), 0) > MAX_POSTPONED_WORK;
    const rows = isFull ? [] : this.#spool.take(work);
    return rows.length > 0 ? { rows, conflicts: 0, waits: false } : this.#postponed.shift();
  }

  postpone(rows: Row[], { conflicts = 0, waits = false }: Partial<Step> = {}): void {
    if (rows.length > 0) this.#postponed.push({ rows, conflicts, waits });
  }

  /** Postpones a failed step, or its halves. @throws its error if no retry helps */
  retryLater({ rows, conflicts }: Step, error: unknown): void {
    const code = codeOf(causeOf(error));
    const middle = rows.length >> 1;
    if (code === CANCELED && middle > 0) {
      this.postpone(rows.slice(0, middle));
      this.postpone(rows.slice(middle));
      return;
    }
    const sum = conflicts + (CONFLICTS[code] ?? Number.POSITIVE_INFINITY);
    if (sum > MAX_CONFLICTS) throw error;
    this.postpone(rows, { conflicts: sum });
  }
}

/**
 * Writes all rows of a spool in steps. Retries rows that can't be locked for as long as it takes.
 * @returns the number of jobs for which PostgreSQL had a connection
 * @throws the first error that no retry helps against, or the reason of `signal`; written rows stay
 */
export async function runSteps(
  url: string,
  spool: Spool,
  steps: Steps,
  { jobs = 1, signal }: Options = {},
): Promise<number> {
  const queue = new StepQueue(spool);
  /** The connections that jobs use or try to open, at most one of each job. */
  const connections = new Set<Connection>();
  const end = new AbortController();
  const stopped = AbortSignal.any([end.signal, ...(signal ? [signal] : [])]);
  /** For each row of a step with an unknown outcome: the ids of the transactions that may have written it. */
  const unconfirmed = new Map<Row, string[]>();
  const idsOf = (row: Row) => unconfirmed.get(row) ?? [];
  let jobsWithoutConnection = 0;
  let lastWritten = performance.now();

  /**
   * Locks and writes rows in a transaction. Postpones those that another transaction holds.
   * @returns how many milliseconds the step took; undefined if it did not write all rows
   * @throws the error of a step that failed; then its connection is closed
   */
  async function write(connection: Connection, { rows, waits }: Step): Promise<number | undefined> {
    const maxMs = waits || rows.length > 1 ? MAX_STEP_MS : MAX_ROW_MS;
    const messages = (sql: Transaction) => {
      const limited = (statement: Fragment) => sql`${limitToRest(sql, maxMs)}; ${statement};`;
      // Derives what was deferred. A commit would do so without a time limit.
      const derive = sql`SET CONSTRAINTS ALL IMMEDIATE`;
      const statements = [...steps.lock(sql, waits), ...steps.write(sql), requireGiven(sql), derive];
      const message = sql`
        SET LOCAL lock_timeout = ${sql.unsafe(`${LOCK_TIMEOUT_MS}`)};
        ${statements.map(limited)}
        ${committedOf(sql, new Set(rows.flatMap(idsOf)))};
        SELECT ${elapsed(sql)} AS ms;
        ${sql.unsafe(steps.end ?? 'COMMIT')}`;
      return [give(sql, rows), message.simple()];
    };
    const ids: string[] = [];
    const onBegun = steps.countsChanges ? (id: string) => void ids.push(id) : undefined;
    const results = await connection.transactionAtOnce(messages, onBegun).catch((error: unknown) => {
      if (isFailover(failureOf(error))) for (const row of rows) unconfirmed.set(row, [...idsOf(row), ...ids]);
      throw error;
    });
    const busyKeys = new Set(results.flatMap((row) => row.busy?.split('\n') ?? []));
    const busy = rows.filter((row) => busyKeys.has(keyOf(row)));
    if (busy.length === rows.length) {
      // Waits for one of them in a transaction without other locks, so that it blocks no other program.
      queue.postpone(busy.slice(0, 1), { waits: true });
      queue.postpone(busy.slice(1));
      return undefined;
    }
    queue.postpone(busy);
    lastWritten = performance.now();
    const written = rows.filter((row) => !busyKeys.has(keyOf(row)));
    const committed = results.flatMap((row) => row.committed ?? []);
    const committedEarlier = written.filter((row) => idsOf(row).some((id) => committed.includes(id)));
    const changed = new Set([...results.flatMap(({ key }) => key ?? []), ...committedEarlier.map(keyOf)]);
    steps.onWritten?.(written, [...changed]);
    return busy.length === 0 ? Number(results.at(-1)?.ms) : undefined;
  }

  /** Whether a job writes on a connection that has served: PostgreSQL can be reached, and that job will look for further steps. */
  const isWriting = () => [...connections].some(({ hasServed, running }) => hasServed && running > 0);

  /** Runs steps on one connection, which it replaces after an error, until no step is left, or PostgreSQL has no connection. */
  async function runJob(): Promise<void> {
    let connection: Connection | undefined;
    /** A step whose connection broke is repeated at once: it may be committed, and others may change its rows again. */
    let step: Step | undefined;
    let maxWork = FIRST_WORK;
    const drop = () => {
      if (connection) connections.delete(connection);
      connection = undefined;
    };
    /** Runs a step. It is taken once a connection is open: a job that waits for one holds no new rows. Returns whether one was left. */
    const runNext = async (): Promise<boolean> => {
      stopped.throwIfAborted();
      if (!step && queue.isEmpty) return false;
      try {
        if (!connection) {
          // It may be silent for as long as PostgreSQL works, or waits for a standby.
          connection = new Connection(url);
          connections.add(connection);
          await connection.open();
        }
      } catch (error) {
        drop();
        if (!step && queue.isEmpty) return false;
        throw error;
      }
      step ??= queue.next(maxWork);
      if (!step) return false;
      try {
        const ms = await write(connection, step);
        if (ms !== undefined) maxWork = nextMaxWork(maxWork, workOfAll(step.rows), ms);
      } catch (error) {
        drop();
        if (isFailover(failureOf(error))) throw error;
        queue.retryLater(step, error);
        if (codeOf(causeOf(error)) === CANCELED) maxWork = Math.max(maxWork / 2, MIN_WORK);
        await sleep(Math.random() * PAUSE_MS);
      }
      step = undefined;
      return true;
    };
    const mayPass = (error: unknown) =>
      isFailover(failureOf(error)) && (!!step || codeOf(causeOf(error)) !== TOO_MANY_CONNECTIONS || !isWriting());
    /** Leaves new rows to other jobs if PostgreSQL, or a pooler, has a connection for these alone. @throws the error if not */
    const leave = (error: unknown) => {
      if (step || !isFailover(failureOf(error)) || !isWriting()) throw error;
      if (jobsWithoutConnection++ === 0) {
        console.error(`PostgreSQL has too few free connections for --jobs ${jobs}: continuing with fewer`);
      }
      return false;
    };
    try {
      while (await retryInOutage(runNext, { ...OUTAGE, signal: stopped, mayPass }).catch(leave));
    } catch (error) {
      end.abort(error);
    } finally {
      if (connection) connections.delete(connection);
      await connection?.close(0);
    }
  }

  const timers: NodeJS.Timeout[] = [];
  const closeAll = () => connections.forEach((connection) => void connection.close(0));
  const onStop = () => timers.push(setTimeout(cancelSessions, STOP_MS / 2, url), setTimeout(closeAll, STOP_MS));
  stopped.addEventListener('abort', onStop);
  const mayBeBlocked = () => performance.now() - lastWritten > REPORT_BLOCKERS_AFTER_MS;
  await watchingWaits(url, { mayBeBlocked }, () => Promise.all(Array.from({ length: jobs }, runJob)));
  timers.forEach(clearTimeout);
  end.signal.throwIfAborted();
  return jobs - jobsWithoutConnection;
}

/** Returns the SQL for the milliseconds since PostgreSQL received the message with this statement. */
const elapsed = (sql: Transaction) => sql`extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000`;

/** Selects those of the transactions that were committed. After a failover, a new server may not have assigned their ids yet. */
const committedOf = (sql: Transaction, ids: Iterable<string>) => sql`
  SELECT id AS committed FROM unnest('{${sql.unsafe([...ids].join())}}'::xid8[]) AS id
  WHERE CASE WHEN id < pg_current_xact_id() THEN pg_xact_status(id) = 'committed' END`;

/** Limits the statement that follows in the same message to the rest of `maxMs` since PostgreSQL received it. */
const limitToRest = (sql: Transaction, maxMs: number) => sql`
  SELECT set_config('statement_timeout', greatest(1, ${sql.unsafe(`${maxMs}`)} - ${elapsed(sql)})::int::text, true)`;

/** Returns the most work of the next step, after one that had `work` of at most `max`, and took `ms` milliseconds. */
function nextMaxWork(max: number, work: number, ms: number): number {
  return Math.min(Math.max((work * STEP_MS) / Math.max(ms, 1), max / 2, MIN_WORK), max * 2, MAX_WORK);
}
