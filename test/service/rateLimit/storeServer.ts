import type { TestContext } from 'vitest';
import { migrateDatabase } from '../../../src/database/migrations.js';
import { migrationsFolder } from '../../../src/packageFolder.js';
import type { LimitStore } from '../../../src/service/rateLimit/limiter.js';
import { openPostgresStore } from '../../../src/service/rateLimit/postgresStore.js';
import { openRedisStore } from '../../../src/service/rateLimit/redisStore.js';
import { connectTo } from '../../support/connection.js';
import { startPostgres } from '../../support/postgresServer.js';
import { startRedis } from '../../support/redis.js';

/** A server for the store, and its faults. */
interface StoreServer {
  port: number;
  open(port: number): LimitStore;
  /** Suspends it; `thaw` lets it continue, with what was sent meanwhile. */
  freeze(): unknown;
  thaw(): unknown;
  clear(): Promise<unknown>;
  /** Ends it like a crash, so that it is empty after `start`. */
  kill(): Promise<unknown>;
  start(): Promise<unknown>;
}

/** Starts Redis or PostgreSQL for stores with a limit, until the test has finished. */
export async function startStoreServer(
  kind: string,
  limit: number,
  onTestFinished: TestContext['onTestFinished'],
): Promise<StoreServer> {
  if (kind === 'Redis') {
    const redis = await startRedis();
    onTestFinished(() => redis.kill());
    const open = (port: number) => openRedisStore(`redis://127.0.0.1:${port}`, limit);
    return { ...redis, open, freeze: redis.pause, thaw: redis.resume };
  }
  const server = await startPostgres();
  onTestFinished(() => server.remove());
  await migrateDatabase(server.url, migrationsFolder);
  const sql = connectTo(server.url);
  onTestFinished(() => sql.end());
  let frozen: number[] = [];
  return {
    port: server.port,
    open: (port) => openPostgresStore(server.url.replace(String(server.port), String(port)), limit, () => {}),
    async freeze() {
      const rows = await sql`
        SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`;
      frozen = rows.map(({ pid }) => pid);
      for (const pid of frozen) process.kill(pid, 'SIGSTOP');
    },
    thaw() {
      for (const pid of frozen.splice(0)) process.kill(pid, 'SIGCONT');
    },
    clear: () => sql`DELETE FROM rate_limits`,
    kill: () => server.stop('SIGKILL'),
    start: () => server.start(),
  };
}
