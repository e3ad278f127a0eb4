/** The service as in production, with its ports, on the test's own database. */
import { afterAll, beforeAll } from 'vitest';
import { readConfig } from '../src/config.js';
import { openLog } from '../src/log.js';
import { startService } from '../src/server.js';
import { createDatabase } from './database.js';

export interface ListeningService {
  url: string;
  metricsUrl: string;
  databaseUrl: string;
}

/** A service for all tests of a file; without a rate limit, unless `environment` sets one. */
export function useListeningService(environment: Record<string, string> = {}): ListeningService {
  const listening = {} as ListeningService;
  let close: () => Promise<void>;
  beforeAll(async () => {
    const { url: databaseUrl, drop } = await createDatabase();
    const config = readConfig({
      PORT: '0',
      METRICS_PORT: '0',
      RATE_LIMIT_PER_SECOND: '0',
      LOG_LEVEL: 'silent',
      ...environment,
    });
    const service = await startService(config, databaseUrl, openLog(config));
    Object.assign(listening, { databaseUrl, url: service.url, metricsUrl: service.metricsUrl });
    close = async () => {
      await service.close();
      await drop();
    };
  });
  afterAll(() => close?.());
  return listening;
}
