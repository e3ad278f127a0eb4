/** The service as in production, without its port: the same application on a database of the test's own. */
import type { Server } from 'node:http';
import request from 'supertest';
import { afterAll, beforeAll } from 'vitest';
import { type Config, readConfig } from '../../src/config/config.js';
import { closeDatabase, type Database, openDatabase } from '../../src/database/connect.js';
import { openLog } from '../../src/log.js';
import { openService } from '../../src/service/server.js';
import { createDatabase } from './database.js';
import { watchStore } from './withinASecond.js';

export interface TestService {
  /** The server, not listening: supertest makes it listen for each request. */
  app: Server;
  database: Database;
  databaseUrl: string;
}

/** A service for all tests of a file; without a rate limit, unless `environment` sets one. */
export function useService(environment: Record<string, string> = {}): TestService {
  const service = {} as TestService;
  let close: () => Promise<void>;
  beforeAll(async () => {
    const { url, drop } = await createDatabase();
    const config: Config = readConfig({
      METRICS_PORT: '0',
      RATE_LIMIT_PER_SECOND: '0',
      LOG_LEVEL: 'silent',
      ...environment,
    });
    const { server: app, operatorServer, warmUp, close: closeParts } = openService(config, url, openLog(config));
    const database = openDatabase(url);
    await warmUp();
    const unwatch = watchStore(async () => (await request(operatorServer as Server).get('/metrics')).text);
    Object.assign(service, { app, database, databaseUrl: url });
    close = async () => {
      unwatch();
      await closeDatabase(database);
      await closeParts();
      await drop();
    };
  });
  afterAll(() => close());
  return service;
}
