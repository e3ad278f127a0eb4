/** The running service: opens what the application needs, listens, and closes all of it in order. */
import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createApp } from './app.js';
import { type Config, ConfigError } from './config.js';
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
  try {
    await listen(server, config);
  } catch (error) {
    rateLimit.close();
    await closeDatabase(database);
    throw error;
  }
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

async function listen(server: Server, { PORT, HOST }: Config): Promise<void> {
  server.listen(PORT, HOST);
  try {
    await once(server, 'listening');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EADDRINUSE') throw new ConfigError(`PORT ${PORT} of ${HOST} is taken; choose another`);
    if (code === 'EACCES') throw new ConfigError(`PORT ${PORT} of ${HOST} is not ours to listen on; choose another`);
    if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND')
      throw new ConfigError(`HOST ${HOST} is no address of this machine`);
    throw error;
  }
}

/** The HTTP server of the application, not yet listening. */
export function createHttpServer(app: RequestListener): Server {
  return createServer({ maxHeaderSize: MAX_HEADER_SIZE }, app);
}

function urlOf(server: Server, host: string): string {
  const { port } = server.address() as AddressInfo;
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}
