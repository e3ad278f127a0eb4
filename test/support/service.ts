/** The service as in production, in this process, listening on free ports. */
import { afterAll, beforeAll, onTestFinished } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { type Log, openLog } from '../../src/log.js';
import { type Service, startService } from '../../src/service/server.js';
import { type TestConnection as Database, useDatabase } from './database.js';
import { watchStore } from './withinASecond.js';

export interface TestService {
  url: string;
  metricsUrl: string;
  database: Database;
  databaseUrl: string;
}

/** Starts a service on a database; by default without a log and without a rate limit. */
export async function listenOn(
  databaseUrl: string,
  environment: Record<string, string> = {},
  log?: Log,
): Promise<Service> {
  const defaults = { PORT: '0', METRICS_PORT: '0', RATE_LIMIT_PER_SECOND: '0', LOG_LEVEL: 'silent' };
  const config = readConfig({ ...defaults, ...environment });
  const service = await startService(config, databaseUrl, log ?? openLog(config));
  await service.begin();
  const unwatch = watchStore(() => metricsOf(service));
  return {
    ...service,
    close: (delay?: number) => {
      unwatch();
      return service.close(delay);
    },
  };
}

/** Starts a service on a database for the current test. */
export async function useServiceOn(...parameters: Parameters<typeof listenOn>): Promise<Service> {
  const service = await listenOn(...parameters);
  onTestFinished(() => service.close());
  return service;
}

/** Starts one service on a new database for all tests of a file or a suite. */
export function useService(environment: Record<string, string> = {}): TestService {
  const service = {} as TestService;
  const created = useDatabase();
  let close: () => Promise<void>;
  beforeAll(async () => {
    const started = await listenOn(created.url, environment);
    close = started.close;
    const { url, metricsUrl } = started;
    Object.assign(service, { url, metricsUrl, database: created.drizzle, databaseUrl: created.url });
  });
  afterAll(() => close?.());
  return service;
}

/** Returns all metrics of a service in Prometheus's text format. */
export const metricsOf = async ({ metricsUrl }: { metricsUrl?: string | undefined }): Promise<string> =>
  (await fetch(`${metricsUrl}/metrics`)).text();

/** Returns the value of a service's metric, or NaN if it has none. */
export const metricOf = async (service: { metricsUrl?: string | undefined }, name: string): Promise<number> =>
  Number(new RegExp(`^${name}(?:{[^}]*})? (\\S+)$`, 'm').exec(await metricsOf(service))?.[1]);
