/** Servers for the rate limit's store. */
import { Redis } from 'ioredis';
import type { Sql } from 'postgres';
import { migrateDatabase } from '../../../src/database/migrations.js';
import { migrationsFolder } from '../../../src/packageFolder.js';
import type { LimitStore } from '../../../src/service/rateLimit/limiter.js';
import { openPostgresStore } from '../../../src/service/rateLimit/postgresStore.js';
import { openRedisStore } from '../../../src/service/rateLimit/redisStore.js';
import { connectTo } from '../../support/connection.js';
import { startPostgres } from '../../support/postgresServer.js';
import { sendSignal } from '../../support/process.js';
import { hasRedis, startRedis } from '../../support/redis.js';

export const STORES = hasRedis ? ['Redis', 'PostgreSQL'] : ['PostgreSQL'];
export const LIMIT = 10;

/** A server for the store, and its faults. */
export interface StoreServer {
  url: string;
  port: number;
  /** Opens a store with LIMIT at this port, which may be that of a proxy. */
  open(port: number): LimitStore;
  /** Inserts requests of a client, as instances of all versions do; the times are in milliseconds from now, in order. */
  insert(client: string, times: readonly number[]): Promise<unknown>;
  /** Suspends it; `thaw` lets it continue, with what was sent meanwhile. */
  freeze(): unknown;
  thaw(): unknown;
  clear(): Promise<unknown>;
  /** Ends it like a crash, so that it is empty after `start`. */
  kill(): Promise<unknown>;
  start(): Promise<unknown>;
  close(): Promise<void>;
}

/** Inserts requests of a client into the table in PostgreSQL; the times are in milliseconds from now. */
export const insertRequests = (sql: Sql, client: string, times: readonly number[]) => sql`
  INSERT INTO rate_limits
  SELECT ${client}, array_agg(clock_timestamp() + time * interval '1ms' ORDER BY time), 1
  FROM unnest(${`{${times}}`}::text::float8[]) AS time`;

export async function startStoreServer(kind: string): Promise<StoreServer> {
  if (kind === 'Redis') {
    const server = await startRedis();
    const client = new Redis(server.url);
    client.on('error', () => {});
    return {
      ...server,
      open: (port) => openRedisStore(`redis://127.0.0.1:${port}`, LIMIT),
      insert: (name, times) =>
        client.rpush(`branded-phone-numbers:limit:${name}`, ...times.map((time) => (Date.now() + time) * 1000)),
      freeze: server.pause,
      thaw: server.resume,
      close() {
        client.disconnect();
        return server.kill();
      },
    };
  }
  const server = await startPostgres();
  await migrateDatabase(server.url, migrationsFolder);
  const sql = connectTo(server.url);
  let frozen: number[] = [];
  return {
    url: server.url,
    port: server.port,
    open: (port) => openPostgresStore(server.url.replace(String(server.port), String(port)), LIMIT, () => {}),
    insert: (client, times) => insertRequests(sql, client, times),
    async freeze() {
      const rows = await sql`
        SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`;
      frozen = rows.map(({ pid }) => pid);
      for (const pid of frozen) sendSignal(pid, 'SIGSTOP');
    },
    thaw() {
      // A session that was ending can't be suspended.
      for (const pid of frozen.splice(0)) sendSignal(pid, 'SIGCONT');
    },
    clear: () => sql`DELETE FROM rate_limits`,
    kill: () => server.stop('SIGKILL'),
    start: () => server.start(),
    async close() {
      await sql.end();
      await server.remove();
    },
  };
}
