/** The service as in production, without its port: the same application on a database of the test's own. */
import type { RequestListener, Server } from 'node:http';
import { afterAll, beforeAll } from 'vitest';
import { createApp } from '../src/app.js';
import { type Config, readConfig } from '../src/config.js';
import { closeDatabase, type Database, openDatabase } from '../src/database.js';
import { openLog } from '../src/log.js';
import { createRateLimit } from '../src/rateLimit.js';
import { createHttpServer } from '../src/server.js';
import { createDatabase } from './database.js';

export interface TestService {
  /** The server, not listening: supertest makes it listen for each request. */
  app: Server;
  /** The application itself, to be mounted elsewhere. */
  handler: RequestListener;
  database: Database;
  databaseUrl: string;
}

/** A service for all tests of a file; without a rate limit, unless `environment` sets one. */
export function useService(environment: Record<string, string> = {}): TestService {
  const service = {} as TestService;
  let close: () => Promise<void>;
  beforeAll(async () => {
    const { url, drop } = await createDatabase();
    const config: Config = readConfig({ RATE_LIMIT_PER_SECOND: '0', LOG_LEVEL: 'silent', ...environment });
    const database = openDatabase(url);
    const rateLimit = createRateLimit(database, config.RATE_LIMIT_PER_SECOND);
    const handler = createApp({ config, database, rateLimit, log: openLog(config) });
    Object.assign(service, { app: createHttpServer(handler), handler, database, databaseUrl: url });
    close = async () => {
      rateLimit.close();
      await closeDatabase(database);
      await drop();
    };
  });
  afterAll(() => close());
  return service;
}
