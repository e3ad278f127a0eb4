/** The running service. */
import type { Config } from '../config/config.js';
import type { Log } from '../log.js';
import { openService } from './app.js';
import { listen, urlOf } from './http/httpServer.js';

export type Service = Awaited<ReturnType<typeof startService>>;

/** Starts the service: it listens, but is not ready until `begin` has resolved. */
export async function startService(config: Config, databaseUrl: string, log: Log) {
  const service = openService(config, databaseUrl, log);
  const { server, operatorServer } = service;
  service.setObstacle({ reason: 'starting' });
  try {
    await listen(server, config, ['HOST', 'PORT']);
    if (operatorServer) await listen(operatorServer, config, ['METRICS_HOST', 'METRICS_PORT']);
  } catch (error) {
    await service.close();
    throw error;
  }
  return {
    ...service,
    url: urlOf(server, config.HOST),
    /** The URL of its metrics; undefined unless METRICS_PORT is set. */
    metricsUrl: operatorServer && urlOf(operatorServer, config.METRICS_HOST),
  };
}
