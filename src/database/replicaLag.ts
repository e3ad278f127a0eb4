/**
 * How far a streaming replica is behind its primary, seen from the replica alone.
 *
 * The time since the last replayed commit is no measure: while nobody writes it grows, though nothing is missing. Nor is
 * the difference between what was received and what was replayed: once the connection to the primary is cut, both stand
 * still and are equal. So this samples both positions once a second: what is written by then is a mark, and the lag is the
 * age of the oldest mark that has not been reached yet. While no receiver is connected to the primary, nobody knows what
 * has been written since, so the lag grows.
 *
 * One mark at a time is not enough: the lag would start again from 0 with each mark, and a replica that is always 40 s
 * behind would be ready for 30 s of every 40.
 *
 * Limits: it is accurate to about a second. A connection that was cut silently is noticed when PostgreSQL notices it,
 * after `wal_receiver_timeout`. Only roles with `pg_read_all_stats` see what is written but not received yet.
 */
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import type { Database } from './connect.js';
import { causeOf, codeOf, SQLSTATE } from './errors.js';
import type { Prepared } from './generations.js';
import type { Reader } from './reads.js';

const SAMPLE_INTERVAL_MS = 1000;
const SAMPLE_TIMEOUT_MS = 900;
/** The most marks that are kept; beyond that, every other one is dropped. */
const MAX_MARKS = 1000;

/** What a server reports about itself. Positions are bytes of the write-ahead log. */
export interface Sample {
  isReplica: boolean;
  /** How far the replica is, and how far the primary is known to have written. */
  replayed: number;
  written: number;
  /** Whether it receives from its primary. */
  isConnected: boolean;
  /** Seconds since the last commit that was replayed; null where there was none. */
  secondsSinceCommit: number | null;
}

/** The lag after a series of samples, each with its time in milliseconds. */
export class LagEstimate {
  /** Positions that the replica has not reached, in order, and when each was known to be written. */
  #marks: { written: number; at: number }[] = [];
  #isConnected = true;
  #lastConnected: number | undefined;

  observe({ isReplica, replayed, written, isConnected, secondsSinceCommit }: Sample, at: number): void {
    // As far as anyone knows, reads that move to a replica when this primary fails have missed nothing before that. An
    // idle primary's last commit may be days old, and that would take out all instances at once.
    this.#isConnected = isConnected || !isReplica;
    this.#marks = isReplica ? this.#marks.filter((mark) => mark.written > replayed) : [];
    if (isReplica && written > Math.max(replayed, this.#marks.at(-1)?.written ?? 0)) this.#marks.push({ written, at });
    if (this.#marks.length > MAX_MARKS) this.#marks = this.#marks.filter((_mark, i) => i % 2 === 0);
    if (this.#isConnected) this.#lastConnected = at;
    // It has never been seen connected: what it has may be as old as its last commit.
    else this.#lastConnected ??= at - (secondsSinceCommit ?? Number.POSITIVE_INFINITY) * 1000;
  }

  /** Seconds behind the primary; 0 for a primary. */
  seconds(now: number): number {
    const notReplayed = now - (this.#marks[0]?.at ?? now);
    const notConnected = this.#isConnected ? 0 : now - (this.#lastConnected ?? now);
    return Math.max(notReplayed, notConnected) / 1000;
  }
}

/** Watches the lag of the server that is read from, which a failover may change. */
export class ReplicaLag {
  readonly #estimate = new LagEstimate();
  readonly #reader: Pick<Reader<Prepared>, 'read'>;
  readonly #maxSeconds: number;
  readonly #log: Log;
  readonly #metrics: Metrics;
  readonly #timer: NodeJS.Timeout | undefined;
  #isRefused = false;

  /** Watches nothing if `maxSeconds` is 0. */
  constructor(reader: Pick<Reader<Prepared>, 'read'>, maxSeconds: number, log: Log, metrics: Metrics) {
    this.#reader = reader;
    this.#maxSeconds = maxSeconds;
    this.#log = log;
    this.#metrics = metrics;
    if (maxSeconds > 0) this.#timer = setInterval(() => void this.takeSample(), SAMPLE_INTERVAL_MS).unref();
  }

  /** Says how far behind the replica is, for people, if that is too far. */
  tooFarBehind(): string | undefined {
    const seconds = this.#estimate.seconds(performance.now());
    if (this.#maxSeconds === 0 || seconds <= this.#maxSeconds) return undefined;
    if (seconds === Number.POSITIVE_INFINITY) return 'the replica is not connected to its primary';
    return `the replica is ${Math.floor(seconds)} s behind its primary`;
  }

  /** Takes a sample. Never throws: a database that does not answer is reported elsewhere. */
  async takeSample(): Promise<void> {
    if (this.#maxSeconds === 0) return;
    try {
      const sample = await this.#reader.read(({ database }) => sampleOf(database), SAMPLE_TIMEOUT_MS);
      this.#estimate.observe(sample, performance.now());
      this.#isRefused = false;
    } catch (error) {
      const { message: reason } = causeOf(error);
      const code = codeOf(causeOf(error));
      // Logged once, since what is refused once is refused every second, as by an engine without these functions.
      const isRefused = SQLSTATE.test(code);
      if (isRefused && !this.#isRefused)
        this.#log.warn({ code, reason }, 'how far the database is behind is not known');
      this.#isRefused = isRefused;
    }
    this.#metrics.replicaLag(this.#estimate.seconds(performance.now()));
  }

  close(): void {
    clearInterval(this.#timer);
  }
}

async function sampleOf(database: Database): Promise<Sample> {
  const [row] = await database.$client`
    SELECT pg_is_in_recovery() AS "isReplica",
      pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0') AS replayed,
      pg_wal_lsn_diff(greatest(pg_last_wal_receive_lsn(), latest_end_lsn), '0/0') AS written,
      pid IS NOT NULL AS "isConnected",
      extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()) AS "secondsSinceCommit"
    FROM (SELECT) AS always LEFT JOIN pg_stat_wal_receiver ON true`;
  if (!row) throw new Error('no sample');
  return {
    isReplica: row.isReplica,
    replayed: Number(row.replayed),
    written: Number(row.written),
    isConnected: row.isConnected,
    secondsSinceCommit: row.secondsSinceCommit === null ? null : Number(row.secondsSinceCommit),
  };
}
