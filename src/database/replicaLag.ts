/**
 * How far a streaming replica is behind its primary, seen from the replica alone.
 *
 * The time since the last replayed commit would not do: while nobody writes it grows, though nothing is missing. Nor would
 * a comparison of what was received with what was replayed: once the connection to the primary is cut both stand still,
 * and are equal. So this samples both positions once a second. If a position was known to be written some seconds ago
 * and is not replayed yet, the lag is that many seconds; and while no receiver is connected to the primary, nobody knows
 * what has been written since, so the lag grows.
 *
 * Limits: it is accurate to about a second. A connection that was cut silently is noticed when PostgreSQL notices it,
 * after `wal_receiver_timeout`. Only roles with `pg_read_all_stats` see what was written and is not received yet.
 */
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import type { Database } from './connect.js';
import { causeOf, codeOf } from './errors.js';
import type { Reader } from './reads.js';

const SAMPLE_INTERVAL_MS = 1000;
const SAMPLE_TIMEOUT_MS = 900;
/** The most positions that are kept; beyond that, every other one is dropped. */
const MOST_POSITIONS = 1000;

/** The form of PostgreSQL's own error codes. */
const SQLSTATE = /^[0-9A-Z]{5}$/;

/** What a server says of itself. Positions are bytes of the write-ahead log. */
export interface Sample {
  isReplica: boolean;
  /** Where the replica is, and the furthest place that the primary is known to have written. */
  replayed: number;
  written: number;
  /** Whether it receives from its primary. */
  isConnected: boolean;
  /** Seconds since the last commit that was replayed; null where there was none. */
  secondsSinceCommit: number | null;
}

/** The lag after a series of samples, each with its time in milliseconds. */
export class LagEstimate {
  /** Places that the primary had reached at a time, and the replica has not, in their order. */
  #ahead: { written: number; at: number }[] = [];
  #isReplica = false;
  #isConnected = true;
  #lastConnected: number | undefined;

  observe({ isReplica, replayed, written, isConnected, secondsSinceCommit }: Sample, at: number): void {
    this.#isReplica = isReplica;
    this.#isConnected = isConnected;
    if (!isReplica) {
      this.#ahead = [];
      // Reads that move to a replica when this primary fails have missed nothing before that, as far as anyone knows: an
      // idle primary's last commit may be days old, and all instances would be taken out at once for it.
      this.#lastConnected = at;
      return;
    }
    this.#ahead = this.#ahead.filter((place) => place.written > replayed);
    if (written > replayed && written > (this.#ahead.at(-1)?.written ?? 0)) this.#ahead.push({ written, at });
    if (this.#ahead.length > MOST_POSITIONS) this.#ahead = this.#ahead.filter((_place, i) => i % 2 === 0);
    if (isConnected) this.#lastConnected = at;
    // Never seen connected: what it has may be as old as its last commit.
    else this.#lastConnected ??= at - (secondsSinceCommit ?? Number.POSITIVE_INFINITY) * 1000;
  }

  /** Seconds behind the primary; 0 for a primary. */
  seconds(now: number): number {
    if (!this.#isReplica) return 0;
    const notReplayed = now - (this.#ahead[0]?.at ?? now);
    const notConnected = this.#isConnected ? 0 : now - (this.#lastConnected ?? now);
    return Math.max(notReplayed, notConnected) / 1000;
  }
}

/** Watches the lag of the server that `database` reads from, which a failover may change. */
export class ReplicaLag {
  readonly #estimate = new LagEstimate();
  readonly #sample: () => Promise<Sample>;
  readonly #maxSeconds: number;
  readonly #log: Log;
  readonly #metrics: Metrics;
  readonly #timer: NodeJS.Timeout | undefined;
  #isSampling = false;
  #isRefused = false;

  /** Watches nothing if `maxSeconds` is 0. */
  constructor(database: Database, reader: Reader, maxSeconds: number, log: Log, metrics: Metrics) {
    this.#sample = () => reader.read(() => sampleOf(database), SAMPLE_TIMEOUT_MS);
    this.#maxSeconds = maxSeconds;
    this.#log = log;
    this.#metrics = metrics;
    if (maxSeconds > 0) this.#timer = setInterval(() => void this.takeSample(), SAMPLE_INTERVAL_MS).unref();
  }

  /** What is wrong with the replica, for people; undefined if nothing is. */
  trouble(): string | undefined {
    const seconds = this.#estimate.seconds(performance.now());
    if (this.#maxSeconds === 0 || seconds <= this.#maxSeconds) return undefined;
    if (seconds === Number.POSITIVE_INFINITY) return 'the replica is not connected to its primary';
    return `the replica is ${Math.floor(seconds)} s behind its primary`;
  }

  /** Takes a sample. Never throws: a database that does not answer is reported elsewhere. */
  async takeSample(): Promise<void> {
    if (this.#maxSeconds === 0 || this.#isSampling) return;
    this.#isSampling = true;
    try {
      this.#estimate.observe(await this.#sample(), performance.now());
      this.#isRefused = false;
    } catch (error) {
      const { message: reason } = causeOf(error);
      const code = codeOf(causeOf(error));
      // What PostgreSQL refuses once, it refuses every second, such as an engine without these functions: logged once.
      const isRefused = SQLSTATE.test(code);
      if (isRefused && !this.#isRefused)
        this.#log.warn({ code, reason }, 'how far the database is behind is not known');
      this.#isRefused = isRefused;
    } finally {
      this.#isSampling = false;
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
