/**
 * The session that tells other processes that this process uses the folder's PostgreSQL. When a process is killed, its
 * session disappears from pg_stat_activity, so there is nothing to clean up.
 */
import { randomUUID } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import postgres from 'postgres';
import { parseDatabaseUrl } from '../../config/databaseAddress.js';
import { ConnectionSocket } from '../../database/socket.js';
import { withDeadline } from '../../deadline.js';
import { type Cluster, urlOf } from './cluster.js';
import { unusable } from './programs.js';

/**
 * The name of the database, and the application names of sessions. All versions that share a folder use the same names.
 */
const DATABASE = 'branded_phone_numbers';
const USING = 'branded-phone-numbers user';
const LEAVING = 'branded-phone-numbers leaving';
const RESPONSE_TIMEOUT_MS = 5_000;

export type Session = Awaited<ReturnType<typeof openSession>>;

/**
 * Opens a session, and creates the database if it does not exist.
 * @throws {UserError} if the server has other data
 * @throws the driver's error, or an error if another process is stopping the server
 */
export async function openSession(cluster: Cluster) {
  let isJoined = false;
  const address = parseDatabaseUrl(urlOf(cluster, 'postgres'));
  const sql = postgres({
    ...(address.options as postgres.Options<Record<string, never>>),
    socket: () => new ConnectionSocket(address, 0, () => {}).open(),
    max: 1,
    idle_timeout: 0,
    max_lifetime: null,
    connect_timeout: RESPONSE_TIMEOUT_MS / 1000,
    backoff: () => 0.2,
    fetch_types: false,
    connection: { application_name: USING },
    onnotice: () => {},
    // Reconnects: if one of its processes crashes, PostgreSQL closes all sessions and continues.
    onclose: () => isJoined && sql`SELECT`.catch(() => {}),
  } as postgres.Options<Record<string, never>>);
  const end = () => sql.end({ timeout: 0 });
  const hasOther = async (name: string) =>
    (await sql`SELECT FROM pg_stat_activity WHERE application_name = ${name}`).length > 0;
  let pid = Number.NaN;
  // From the server itself, because the folder may be deleted, and another server may run in a new one. Again at the end:
  // if the server was killed, another process may have started a new one, and this session has joined it.
  const readPid = async () => {
    const [file] = await sql`SELECT pg_read_file('postmaster.pid', true) AS content`;
    pid = Number.parseInt(file?.content, 10) || pid;
  };
  const isLast = async () => {
    await sql`SELECT set_config('application_name', ${LEAVING}, false)`;
    await readPid();
    return !(await hasOther(USING));
  };
  // The setting data_directory would not do: another folder may have been put in the place of one that was moved.
  const requireOurData = async () => {
    const name = `data-of-${randomUUID()}`;
    const file = join(cluster.home, 'data', name);
    await writeFile(file, '');
    const [row] = await sql`SELECT (pg_stat_file(${name}, true)).size = 0 AS seen`.finally(() => rm(file));
    if (!row?.seen) {
      throw unusable(`that runs for ${cluster.home} has other data, which was moved away. Stop what uses it`);
    }
  };
  const createDatabase = async () => {
    const [existing] = await sql`SELECT FROM pg_database WHERE datname = ${DATABASE}`;
    if (!existing) await sql`CREATE DATABASE ${sql(DATABASE)}`;
  };
  try {
    await withTimeout(requireOurData());
    // A leaving process changes its name, then looks for users; a joining one connects, then looks for leaving ones. So
    // at least one of the two sees the other.
    if (await withTimeout(hasOther(LEAVING))) throw new Error('another process is stopping it');
    await withTimeout(createDatabase());
    await withTimeout(readPid());
    isJoined = true;
  } catch (error) {
    await end();
    throw error;
  }
  return {
    /** The URL of the database. */
    url: urlOf(cluster, DATABASE),
    /** Marks this process as leaving. Returns PostgreSQL's process if no other one uses it, so that it has to be stopped. */
    async leave(): Promise<number | undefined> {
      isJoined = false;
      // A server that does not respond is of no use to other processes either.
      return (await withTimeout(isLast()).catch(() => true)) ? pid : undefined;
    },
    end,
  };
}

/** Settles as `query` does, or rejects after `RESPONSE_TIMEOUT_MS`. */
function withTimeout<T>(query: PromiseLike<T>): Promise<T> {
  return withDeadline(
    query,
    RESPONSE_TIMEOUT_MS,
    () => new Error(`no response within ${RESPONSE_TIMEOUT_MS / 1000} s`),
  );
}
