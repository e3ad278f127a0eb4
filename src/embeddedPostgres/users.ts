/** The processes that use one embedded PostgreSQL: each holds an advisory lock, and the last one stops the server. */
import { setTimeout as sleep } from 'node:timers/promises';
import postgres from 'postgres';
import { codeOf } from '../database/errors.js';
import { withDeadline } from '../deadline.js';
import {
  type Cluster,
  crashReasonSince,
  logSize,
  POLL_INTERVAL_MS,
  runningPostmaster,
  stopPostmaster,
} from './server.js';

const DATABASE = 'branded_phone_numbers';
/** The advisory lock of the users: any number, but the same in every version that may share a folder. */
const USERS_LOCK = 7_302_651;
/** For one statement on the connection that marks this process as a user. */
const ANSWER_TIMEOUT_MS = 5_000;
/** The same where the process has to end at once. */
const HURRIED_ANSWER_TIMEOUT_MS = 2_000;
/** After PostgreSQL closed the connection: it restarts its processes in about this time. */
const MARK_AGAIN_DELAY_MS = 500;

export interface User {
  url: string;
  leave(hurry: AbortSignal): Promise<void>;
  crashReason(): Promise<string | undefined>;
}

/** Connects, and marks this process as a user by a shared advisory lock; PostgreSQL drops it if we are killed. */
export async function join(cluster: Cluster, port: number): Promise<User> {
  const url = (database: string) => `postgres://postgres:${cluster.password}@127.0.0.1:${port}/${database}`;
  const markAsUser = () => sql`select pg_advisory_lock_shared(${USERS_LOCK})`;
  const begin = await logSize(cluster);
  let using = false;
  const sql = postgres(url('postgres'), {
    max: 1,
    idle_timeout: 0,
    max_lifetime: null, // the lock lives as long as the connection
    connect_timeout: ANSWER_TIMEOUT_MS / 1000,
    fetch_types: false,
    connection: { application_name: 'branded-phone-numbers user' },
    onnotice: () => {},
    // When one of its processes crashes, PostgreSQL closes all connections and goes on.
    onclose: () => using && setTimeout(() => using && markAsUser().catch(() => {}), MARK_AGAIN_DELAY_MS).unref(),
  });
  try {
    await inTime(markAsUser());
    const [existing] = await inTime(sql`select from pg_database where datname = ${DATABASE}`);
    if (!existing) await createDatabase(sql);
    using = true;
  } catch (error) {
    await sql.end({ timeout: 0 });
    throw error;
  }

  async function leave(hurry: AbortSignal): Promise<void> {
    using = false;
    try {
      if (await isLastUser(hurry)) await stopPostmaster(cluster, hurry);
    } finally {
      await sql.end({ timeout: 0 });
    }
  }

  /**
   * If so, new users wait for the lock until the stop disconnects them, and then start PostgreSQL again. A server that
   * does not answer counts as ours to stop: it is of no use to others either.
   */
  async function isLastUser(hurry: AbortSignal): Promise<boolean> {
    const begin = Date.now();
    const isInTime = () => Date.now() - begin < (hurry.aborted ? HURRIED_ANSWER_TIMEOUT_MS : ANSWER_TIMEOUT_MS);
    let last: boolean | undefined;
    const ask = async () => {
      await sql`select pg_advisory_unlock_all()`;
      const [answer] = await sql`select pg_try_advisory_lock(${USERS_LOCK}) as last`;
      last = answer?.last === true;
    };
    let asking = ask().catch(() => {});
    while (last === undefined && isInTime() && (await runningPostmaster(cluster.data))) {
      const isSettled = await Promise.race([asking.then(() => true), sleep(POLL_INTERVAL_MS, false)]);
      // PostgreSQL closes all connections when one of its processes crashes, and then takes new ones.
      if (isSettled && last === undefined) asking = ask().catch(() => {});
    }
    return last ?? true;
  }

  return { url: url(DATABASE), leave, crashReason: () => crashReasonSince(cluster, begin) };
}

async function createDatabase(sql: postgres.Sql): Promise<void> {
  try {
    await sql`create database ${sql(DATABASE)}`;
  } catch (error) {
    const anotherWasQuicker = ['42P04', '23505'].includes(codeOf(error));
    if (!anotherWasQuicker) throw error;
  }
}

function inTime<T>(answer: PromiseLike<T>): Promise<T> {
  return withDeadline(answer, ANSWER_TIMEOUT_MS, () => new Error(`no answer within ${ANSWER_TIMEOUT_MS / 1000} s`));
}
