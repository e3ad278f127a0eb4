/** The service as in production, listening on its ports. */
import { afterAll, beforeAll } from 'vitest';
import { type Log, openLog } from '../../src/log.js';
import { type Service, startService } from '../../src/service/server.js';
import { useDatabase } from './database.js';
import { configure } from './service.js';
import { watchStore } from './withinASecond.js';

export interface ListeningService {
  url: string;
  metricsUrl: string;
  databaseUrl: string;
}

/** Starts a service on a database, with the defaults of `configure`. */
export async function listenOn(
  databaseUrl: string,
  environment: Record<string, string> = {},
  log?: Log,
): Promise<Service> {
  const config = configure({ PORT: '0', ...environment });
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

/** Starts one service on a new database for all tests of a file. */
export function useListeningService(environment: Record<string, string> = {}): ListeningService {
  const listening = {} as ListeningService;
  const database = useDatabase();
  let service: Service;
  beforeAll(async () => {
    service = await listenOn(database.url, environment);
    Object.assign(listening, { databaseUrl: database.url, url: service.url, metricsUrl: service.metricsUrl });
  });
  afterAll(() => service?.close());
  return listening;
}

/** Returns all metrics of a service in Prometheus's text format. */
export const metricsOf = async ({ metricsUrl }: { metricsUrl?: string | undefined }): Promise<string> =>
  (await fetch(`${metricsUrl}/metrics`)).text();

/** Returns the value of a service's metric, or NaN if it has none. */
export const metricOf = async (service: { metricsUrl?: string | undefined }, name: string): Promise<number> =>
  Number(new RegExp(`^${name}(?:{[^}]*})? (\\S+)$`, 'm').exec(await metricsOf(service))?.[1]);
