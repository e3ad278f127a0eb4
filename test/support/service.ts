/** The service as in production, but without a port. */
import type { Server } from 'node:http';
import request from 'supertest';
import { afterAll, beforeAll } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { closeDatabase, type Database, openDatabase } from '../../src/database/connect.js';
import { type Log, openLog } from '../../src/log.js';
import { openService } from '../../src/service/server.js';
import { useDatabase } from './database.js';
import { watchStore } from './withinASecond.js';

export interface TestService {
  /** Does not listen: supertest opens a port for each request. */
  app: Server;
  database: Database;
  databaseUrl: string;
}

/** Reads settings; by default without a log and without a rate limit. */
export const configure = (environment: Record<string, string>) =>
  readConfig({ METRICS_PORT: '0', RATE_LIMIT_PER_SECOND: '0', LOG_LEVEL: 'silent', ...environment });

/** Opens a service on a database, to which nothing is sent before its `warmUp` or its first request. */
export function openOn(databaseUrl: string, environment: Record<string, string> = {}, log?: Log) {
  const config = configure(environment);
  return openService(config, databaseUrl, log ?? openLog(config));
}

/** Opens one service on a new database for all tests of a file. */
export function useService(environment: Record<string, string> = {}): TestService {
  const service = {} as TestService;
  const created = useDatabase();
  let close: () => Promise<void>;
  beforeAll(async () => {
    const { url } = created;
    const { server: app, operatorServer, warmUp, close: closeParts } = openOn(url, environment);
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
