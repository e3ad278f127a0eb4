/** The processes that use one embedded PostgreSQL: each holds an advisory lock, and the last one stops the server. */
import { setTimeout as sleep } from 'node:timers/promises';
import postgres from 'postgres';
import { codeOf, DATABASE_EXISTS } from '../database/errors.js';
import { withDeadline } from '../deadline.js';
import { type Cluster, stopServer } from './cluster.js';

const DATABASE = 'branded_phone_numbers';
/** The advisory lock of the users: any number, but the same in every version that may share a folder. */
const USERS_LOCK = 7_302_651;
/** For one statement on the connection that marks this process as a user. */
const ANSWER_TIMEOUT_MS = 5_000;
/** For the restart of PostgreSQL's processes after one has crashed, which others may be waiting for. */
const RECOVERY_TIMEOUT_MS = 10_000;
/** Between attempts to connect. */
const RECONNECT_DELAY_SECONDS = 0.2;

export interface User {
  url: string;
  leave(hurry: AbortSignal): Promise<void>;
}

/** Connects, and marks this process as a user by a shared advisory lock; PostgreSQL drops it if we are killed. */
export async function join(cluster: Cluster, port: number): Promise<User> {
  const url = (database: string) => `postgres://postgres:${cluster.password}@127.0.0.1:${port}/${database}`;
  let isUsing = false;
  const sql = postgres(url('postgres'), {
    max: 1,
    idle_timeout: 0,
    max_lifetime: null, // the lock lives as long as the connection
    connect_timeout: ANSWER_TIMEOUT_MS / 1000,
    backoff: () => RECONNECT_DELAY_SECONDS,
    fetch_types: false,
    connection: { application_name: 'branded-phone-numbers user' },
    onnotice: () => {},
    // When one of its processes crashes, PostgreSQL closes all connections and goes on.
    onclose: () => isUsing && hold().catch(() => {}),
  });
  const hold = async () => void (await sql`select pg_advisory_lock_shared(${USERS_LOCK})`);
  try {
    await inTime(hold());
    await inTime(createDatabase(sql));
    isUsing = true;
  } catch (error) {
    await sql.end({ timeout: 0 });
    throw error;
  }
  return {
    url: url(DATABASE),
    async leave(hurry) {
      isUsing = false;
      try {
        if (await isLast(sql)) await stopServer(cluster, hurry);
      } finally {
        await sql.end({ timeout: 0 });
      }
    },
  };
}

async function createDatabase(sql: postgres.Sql): Promise<void> {
  const [existing] = await sql`select from pg_database where datname = ${DATABASE}`;
  if (existing) return;
  try {
    await sql`create database ${sql(DATABASE)}`;
  } catch (error) {
    const anotherWasQuicker = DATABASE_EXISTS.test(codeOf(error));
    if (!anotherWasQuicker) throw error;
  }
}

/**
 * Whether there are no other users. If so, new ones wait for the lock until the stop disconnects them, and then start
 * PostgreSQL again. A server that does not answer may be stopped, too: it is of no use to others either.
 */
async function isLast(sql: postgres.Sql): Promise<boolean> {
  const deadline = Date.now() + RECOVERY_TIMEOUT_MS;
  let patienceSeconds = 0;
  const ask = async () => {
    await sql`select pg_sleep(${patienceSeconds}), pg_advisory_unlock_all()`;
    const [answer] = await sql`select pg_try_advisory_lock(${USERS_LOCK}) as last`;
    return answer?.last === true;
  };
  while (Date.now() < deadline) {
    try {
      return await inTime(ask());
    } catch (error) {
      if (codeOf(error) === 'ECONNREFUSED') return false; // it is gone
      if (!codeOf(error)) return true; // no answer in time
      // One of its processes may have crashed, which ends all sessions. The other users then take the lock again, before us.
      patienceSeconds = 5 * RECONNECT_DELAY_SECONDS;
      await sleep(RECONNECT_DELAY_SECONDS * 1000);
    }
  }
  return true;
}

function inTime<T>(answer: PromiseLike<T>): Promise<T> {
  return withDeadline(answer, ANSWER_TIMEOUT_MS, () => new Error(`no answer within ${ANSWER_TIMEOUT_MS / 1000} s`));
}
