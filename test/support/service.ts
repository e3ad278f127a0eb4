/** The service as in production, but without a port. */
import type { Server } from 'node:http';
import request from 'supertest';
import { afterAll, beforeAll } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { closeDatabase, type Database, openDatabase } from '../../src/database/connect.js';
import { openLog } from '../../src/log.js';
import { openService } from '../../src/service/server.js';
import { useDatabase } from './database.js';
import { watchStore } from './withinASecond.js';

export interface TestService {
  /** Does not listen: supertest opens a port for each request. */
  app: Server;
  database: Database;
  databaseUrl: string;
}

/** Opens one service on a new database for all tests of a file; by default without a rate limit. */
export function useService(environment: Record<string, string> = {}): TestService {
  const service = {} as TestService;
  const created = useDatabase();
  let close: () => Promise<void>;
  beforeAll(async () => {
    const { url } = created;
    const settings = { METRICS_PORT: '0', RATE_LIMIT_PER_SECOND: '0', LOG_LEVEL: 'silent' };
    const config = readConfig({ ...settings, ...environment });
    const { server: app, operatorServer, warmUp, close: closeParts } = openService(config, url, openLog(config));
    const database = openDatabase(url);
    await warmUp();
    const unwatch = watchStore(async () => (await request(operatorServer as Server).get('/metrics')).text);
    Object.assign(service, { app, database, databaseUrl: url });
    close = async () => {
      unwatch();
      await closeDatabase(database);
      await closeParts();
    };
  });
  afterAll(() => close?.());
  return service;
}
