/**
 * The session by which a process shows the others that it uses the PostgreSQL of their folder. One that is killed is no
 * longer in pg_stat_activity, so nothing has to be put right after it.
 */
import postgres from 'postgres';
import { addressOf } from '../database/address.js';
import { createSockets } from '../database/sockets.js';
import { withDeadline } from '../deadline.js';
import type { Server } from './cluster.js';

/** Names that are the same in every version that may share a folder: of the database, and of the sessions. */
const DATABASE = 'branded_phone_numbers';
const USING = 'branded-phone-numbers user';
const LEAVING = 'branded-phone-numbers leaving';
const ANSWER_TIMEOUT_MS = 5_000;

export type Session = Awaited<ReturnType<typeof openSession>>;

/**
 * Opens a session on the server, and makes the database if it is not there yet.
 * @throws the driver's error, or one that says that the server is about to be stopped
 */
export async function openSession(server: Server) {
  let isUsing = false;
  const address = addressOf(server('postgres'));
  const sockets = createSockets(address, 0);
  const sql = postgres({
    ...(address.options as postgres.Options<Record<string, never>>),
    socket: () => sockets.open(),
    max: 1,
    idle_timeout: 0,
    max_lifetime: null,
    connect_timeout: ANSWER_TIMEOUT_MS / 1000,
    backoff: () => 0.2,
    fetch_types: false,
    connection: { application_name: USING },
    onnotice: () => {},
    // When one of its processes crashes, PostgreSQL ends all sessions and goes on.
    onclose: () => isUsing && sql`SELECT`.catch(() => {}),
  } as postgres.Options<Record<string, never>>);
  const end = () => sql.end({ timeout: 0 });
  const isThere = async (name: string) =>
    (await sql`SELECT FROM pg_stat_activity WHERE application_name = ${name} AND pid <> pg_backend_pid()`).length > 0;
  const isLast = async () => {
    await sql`SELECT set_config('application_name', ${LEAVING}, false)`;
    return !(await isThere(USING));
  };
  const makeDatabase = async () => {
    const [found] = await sql`SELECT FROM pg_database WHERE datname = ${DATABASE}`;
    if (!found) await sql`CREATE DATABASE ${sql(DATABASE)}`;
  };
  try {
    // Who leaves says so, then looks who is there; who comes is there, then looks who leaves: one of them sees the other.
    if (await inTime(isThere(LEAVING))) throw new Error('another process is stopping it');
    await inTime(makeDatabase());
    isUsing = true;
  } catch (error) {
    await end();
    throw error;
  }
  return {
    /** The address of the database. */
    url: server(DATABASE),
    /** Says that this process leaves. Returns whether no other uses PostgreSQL: then it has to be stopped. */
    leave() {
      isUsing = false;
      // A server that does not answer is of no use to others either.
      return inTime(isLast()).catch(() => true);
    },
    end,
  };
}

function inTime<T>(answer: PromiseLike<T>): Promise<T> {
  return withDeadline(answer, ANSWER_TIMEOUT_MS, () => new Error(`no answer within ${ANSWER_TIMEOUT_MS / 1000} s`));
}
