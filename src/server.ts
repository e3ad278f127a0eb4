/** The running service: opens what the application needs, listens, and closes all of it in order. */
import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createApp } from './app.js';
import type { Config } from './config.js';
import { closeDatabase, openDatabase } from './database.js';
import type { Log } from './log.js';
import { createRateLimit } from './rateLimit.js';

/** Bytes of a request's line and headers: enough for 50 long values of each name filter. */
const MAX_HEADER_SIZE = 128 * 1024;

export interface Service {
  /** Where it listens, such as `http://127.0.0.1:3000`. */
  url: string;
  close(): Promise<void>;
}

/** Starts the service on a migrated database. */
export async function startService(config: Config, databaseUrl: string, log: Log): Promise<Service> {
  const database = openDatabase(databaseUrl);
  const rateLimit = createRateLimit(database, config.RATE_LIMIT_PER_SECOND);
  const app = createApp({ config, database, rateLimit, log });
  const server = createHttpServer(app);
  server.listen(config.PORT, config.HOST);
  await once(server, 'listening');
  return {
    url: urlOf(server, config.HOST),
    async close() {
      server.close();
      server.closeIdleConnections();
      await once(server, 'close');
      rateLimit.close();
      await closeDatabase(database);
    },
  };
}

/** The HTTP server of the application, not yet listening. */
export function createHttpServer(app: RequestListener): Server {
  return createServer({ maxHeaderSize: MAX_HEADER_SIZE }, app);
}

function urlOf(server: Server, host: string): string {
  const { port } = server.address() as AddressInfo;
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}
