/**
 * The session that tells other processes that this process uses the folder's PostgreSQL. When a process is killed, its
 * session disappears from pg_stat_activity, so there is nothing to clean up.
 */
import { randomUUID } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Connection, type Transaction } from '../../database/connection.js';
import { type Cluster, urlOf } from './cluster.js';
import { unusable } from './programs.js';

/** The name of the database, and the application names of sessions. All versions that share a folder use the same names. */
const DATABASE = 'branded_phone_numbers';
const USING = 'branded-phone-numbers user';
const LEAVING = 'branded-phone-numbers leaving';
const RESPONSE_TIMEOUT_MS = 5_000;
/** Milliseconds until a connection that broke is followed by another one. */
const REJOIN_MS = 200;

export type Session = Awaited<ReturnType<typeof openSession>>;

/**
 * Opens a session, and creates the database if it does not exist.
 * @throws {UserError} if the server has other data
 * @throws the driver's error, or an error if another process is stopping the server
 */
export async function openSession(cluster: Cluster) {
  let isJoined = false;
  // It is idle for as long as this process runs.
  const url = `${urlOf(cluster, 'postgres')}&options=-cidle_session_timeout%3D0`;
  const open = () => new Connection(url, { statementTimeout: RESPONSE_TIMEOUT_MS, name: USING, onBroken: rejoinSoon });
  let connection = open();
  /** Runs a query, on another connection if the last one broke. */
  const run = async <T>(query: (sql: Transaction) => Promise<T>): Promise<T> => {
    if (connection.failure) connection = open();
    return connection.run(({ $client }) => query($client));
  };
  // If one of its processes crashes, PostgreSQL closes all sessions and continues.
  function rejoinSoon(): void {
    if (isJoined) setTimeout(() => isJoined && run((sql) => sql`SELECT`).catch(() => {}), REJOIN_MS);
  }
  const end = () => connection.close(0);
  let pid = Number.NaN;
  /**
   * Returns whether a session has the name, and sets `pid`: if the server was killed, this session may be on a new one. The server
   * itself reads its file: the folder of this process may have been deleted, and another server may run in a new one.
   */
  const hasSession = async (sql: Transaction, name: string): Promise<boolean> => {
    const [found] = await sql`
      SELECT pg_read_file('postmaster.pid', true) AS file,
        EXISTS (SELECT FROM pg_stat_activity WHERE application_name = ${name}) AS exists`;
    pid = Number.parseInt(found?.file, 10) || pid;
    return found?.exists;
  };
  const prepare = async (sql: Transaction) => {
    // The setting data_directory would not do: another folder may have been put in the place of one that was moved.
    const name = `data-of-${randomUUID()}`;
    const file = join(cluster.home, 'data', name);
    await writeFile(file, '');
    const [row] = await sql`
      SELECT (pg_stat_file(${name}, true)).size = 0 AS seen, ${DATABASE} IN (SELECT datname FROM pg_database) AS exists
    `.finally(() => rm(file));
    if (!row?.seen) {
      throw unusable(`that runs for ${cluster.home} has other data, which was moved away. Stop what uses it`);
    }
    // A leaving process changes its name, then looks for users; a joining one connects, then looks for leaving ones. So
    // at least one of the two sees the other.
    if (await hasSession(sql, LEAVING)) throw new Error('another process is stopping it');
    if (!row.exists) await sql`CREATE DATABASE ${sql(DATABASE)}`;
  };
  const isUsed = async (sql: Transaction) => {
    await sql`SELECT set_config('application_name', ${LEAVING}, false)`;
    return hasSession(sql, USING);
  };
  try {
    await run(prepare);
    isJoined = true;
  } catch (error) {
    await end();
    throw error;
  }
  return {
    url: urlOf(cluster, DATABASE),
    /** Marks this process as leaving. Returns PostgreSQL's process if no other one uses it, so that it has to be stopped. */
    async leave(): Promise<number | undefined> {
      isJoined = false;
      // A server that does not respond is of no use to other processes either.
      return (await run(isUsed).catch(() => false)) ? undefined : pid;
    },
    end,
  };
}
