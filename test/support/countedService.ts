/** A service that counts its reads from the database. */
import { createServer } from 'node:http';
import request from 'supertest';
import { afterAll, afterEach, beforeAll } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { closeDatabase, type Database, openDatabase } from '../../src/database/connect.js';
import type { Connect } from '../../src/database/pool.js';
import { Reader } from '../../src/database/reads.js';
import { openLog } from '../../src/log.js';
import { createMetrics } from '../../src/metrics.js';
import { createApp } from '../../src/service/app.js';
import { createRateLimit } from '../../src/service/rateLimit/rateLimit.js';
import { warmUpValidator } from '../../src/service/request/validator.js';
import { useDatabase } from './database.js';
import { watchStore } from './withinASecond.js';

const PATH = '/v1/brandedPhoneNumbers';
const log = openLog({ LOG_LEVEL: 'silent' });

class CountingReader extends Reader {
  reads = 0;
  /** Reads, reasons for which they failed, and counts to which the store did not respond in time, in order. */
  readonly events: string[] = [];
  override async read<T>(...[query, ...rest]: Parameters<Reader['read']>): Promise<T> {
    this.reads++;
    this.events.push('read');
    const result = super.read(query, ...rest) as Promise<T>;
    result.catch(({ message }) => this.events.push(message));
    return result;
  }
}

interface CountedService {
  reader: CountingReader;
  /** Requests the first page as the client with the address `from`. */
  get(from: string, search?: string): request.Test;
  /** Listens and returns the URL of the list, for clients that keep their connections. */
  listen(): Promise<string>;
}

/** Opens services on one database; each is closed after the test that opened it. */
export function useCountedServices() {
  const closing: (() => Promise<void>)[] = [];
  const use = {} as {
    database: Database;
    databaseUrl: string;
    open(environment?: Record<string, string>): Promise<CountedService>;
  };
  const created = useDatabase();
  beforeAll(() => {
    use.databaseUrl = created.url;
    use.database = openDatabase(created.url);
    use.open = (environment = {}) => open(created.url, environment);
  });
  afterEach(async () => {
    await Promise.all(closing.splice(0).map((close) => close()));
  });
  afterAll(() => closeDatabase(use.database));
  return use;

  async function open(url: string, environment: Record<string, string>): Promise<CountedService> {
    const config = readConfig({ TRUST_PROXY: '1', ...environment });
    const metrics = createMetrics(256);
    const connect: Connect = (onBroken) => openDatabase(url, { onBroken });
    const reader = new CountingReader(connect, { connections: 10, readsEach: 3 }, log, metrics);
    const countStoreFailure = () => {
      reader.events.push('late count');
      metrics.countStoreFailure();
    };
    const rateLimit = createRateLimit(config, url, log, { ...metrics, countStoreFailure });
    await warmUpValidator();
    await rateLimit.warmUp();
    const health = { isStarting: () => false, stopping: new AbortController().signal, health: () => {} };
    const app = createApp({ config, reader, rateLimit, log, metrics, ...health });
    const server = createServer(app);
    const unwatch = watchStore(metrics.text);
    closing.push(async () => {
      unwatch();
      server.close();
      server.closeAllConnections();
      await rateLimit.close();
      await reader.close(0);
    });
    return {
      reader,
      get: (from, search = '') => request(app).get(`${PATH}${search}`).set('X-Forwarded-For', from),
      async listen() {
        await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
        const { port } = server.address() as { port: number };
        return `http://127.0.0.1:${port}${PATH}`;
      },
    };
  }
}
