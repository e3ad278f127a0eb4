/** What the service counts about itself, for Prometheus. Always on, since it costs almost nothing. */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';

export type Metrics = ReturnType<typeof createMetrics>;

/** Creates the metrics of one service that works on at most `maxRequestsInFlight` list requests. */
export function createMetrics(maxRequestsInFlight: number) {
  const registers = [new Registry()];
  const [registry] = registers as [Registry];
  const durations = new Histogram({
    name: 'http_request_duration_seconds',
    help: 'Time to answer, by the route (list or other) and the status',
    labelNames: ['route', 'status'],
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
    registers,
  });
  const inFlight = new Gauge({ name: 'http_requests_in_flight', help: 'List requests being worked on', registers });
  const inFlightLimit = new Gauge({
    name: 'http_requests_in_flight_limit',
    help: 'MAX_REQUESTS_IN_FLIGHT: list requests that are worked on at most',
    registers,
  });
  const decisions = new Histogram({
    name: 'rate_limit_decision_seconds',
    help: 'Time until the rate limit let a request pass or refused it',
    labelNames: ['decision'],
    buckets: [0.001, 0.005, 0.025, 0.1, 0.25],
    registers,
  });
  const storeErrors = new Counter({
    name: 'rate_limit_store_errors_total',
    help: 'Requests to the store of the rate limit that failed or came too late',
    labelNames: ['store'],
    registers,
  });
  const storeUp = new Gauge({
    name: 'rate_limit_store_up',
    help: '0 while this instance limits by itself, since the store of the rate limit fails',
    registers,
  });
  const sweepErrors = new Counter({
    name: 'rate_limit_sweep_errors_total',
    help: 'Times that idle clients could not be removed from the table rate_limits',
    registers,
  });
  const queries = new Gauge({
    name: 'database_queries_in_flight',
    help: 'Queries that the database has not answered yet',
    registers,
  });
  const failovers = new Counter({
    name: 'database_failovers_total',
    help: 'Times that new connections to the database took over, to the same host or another',
    registers,
  });
  const replicaLag = new Gauge({
    name: 'database_replica_lag_seconds',
    help: 'How far the database is behind its primary; 0 where it is the primary itself',
    registers,
  });
  inFlightLimit.set(maxRequestsInFlight);
  storeUp.set(1);
  // A counter that first appears at 1 has not increased, as Prometheus sees it; so those that alerts use start at 0.
  for (const status of [200, 429, 500, 503]) durations.zero({ route: 'list', status });
  durations.zero({ route: 'other', status: 500 });
  for (const decision of ['passed', 'refused']) decisions.zero({ decision });
  return {
    answered: (route: 'list' | 'other', status: number, seconds: number) =>
      durations.observe({ route, status }, seconds),
    inFlight: (count: number) => inFlight.set(count),
    limited: (allowed: boolean, seconds: number) =>
      decisions.observe({ decision: allowed ? 'passed' : 'refused' }, seconds),
    storeFailed: (store: string) => storeErrors.inc({ store }),
    sweepFailed: () => sweepErrors.inc(),
    storeUp: (isUp: boolean) => storeUp.set(isUp ? 1 : 0),
    queries: (count: number) => queries.set(count),
    failedOver: () => failovers.inc(),
    replicaLag: (seconds: number) => replicaLag.set(seconds),
    /** Adds the metrics of the process itself: memory, event loop, garbage collection. */
    collectDefaults: () => collectDefaultMetrics({ register: registry }),
    contentType: registry.contentType,
    text: () => registry.metrics(),
  };
}
