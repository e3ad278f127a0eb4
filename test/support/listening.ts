/** The service as in production, with its ports. */
import { afterAll, beforeAll } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { type Log, openLog } from '../../src/log.js';
import { type Service, startService } from '../../src/service/server.js';
import { createDatabase } from './database.js';
import { watchStore } from './withinASecond.js';

export interface ListeningService {
  url: string;
  metricsUrl: string;
  databaseUrl: string;
}

/** Starts a service on a database: silent, and without a rate limit, unless `environment` or `log` say otherwise. */
export async function listenOn(
  databaseUrl: string,
  environment: Record<string, string> = {},
  log?: Log,
): Promise<Service> {
  const settings = { PORT: '0', METRICS_PORT: '0', RATE_LIMIT_PER_SECOND: '0', LOG_LEVEL: 'silent' };
  const config = readConfig({ ...settings, ...environment });
  const service = await startService(config, databaseUrl, log ?? openLog(config));
  await service.begin();
  const { metricsUrl } = service;
  if (!metricsUrl) return service;
  const unwatch = watchStore(() => metricsOf({ metricsUrl }));
  return {
    ...service,
    close: (delay?: number) => {
      unwatch();
      return service.close(delay);
    },
  };
}

/** A service on a database of its own, for all tests of a file. */
export function useListeningService(environment: Record<string, string> = {}): ListeningService {
  const listening = {} as ListeningService;
  let close: () => Promise<void>;
  beforeAll(async () => {
    const { url: databaseUrl, drop } = await createDatabase();
    const service = await listenOn(databaseUrl, environment);
    Object.assign(listening, { databaseUrl, url: service.url, metricsUrl: service.metricsUrl });
    close = async () => {
      await service.close();
      await drop();
    };
  });
  afterAll(() => close?.());
  return listening;
}

/** All metrics of a service, as Prometheus gets them. */
export const metricsOf = async ({ metricsUrl }: { metricsUrl?: string | undefined }): Promise<string> =>
  (await fetch(`${metricsUrl}/metrics`)).text();

/** The value of a metric of a service; NaN where it has none. */
export const metricOf = async (service: { metricsUrl?: string | undefined }, name: string): Promise<number> =>
  Number(new RegExp(`^${name}(?:{[^}]*})? (\\S+)$`, 'm').exec(await metricsOf(service))?.[1]);
