/** What the service counts about itself, for Prometheus. Always on, since it costs almost nothing. */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';

export type Metrics = ReturnType<typeof createMetrics>;

/** Creates the metrics of one service that works on at most `maxRequestsInFlight` list requests. */
export function createMetrics(maxRequestsInFlight: number) {
  const registry = new Registry();
  const registers = [registry];
  const gauge = (name: string, help: string) => new Gauge({ name, help, registers });
  const counter = (name: string, help: string) => new Counter({ name, help, registers });
  const durations = new Histogram({
    name: 'http_request_duration_seconds',
    help: 'Time to answer, by the route (list or other) and the status',
    labelNames: ['route', 'status'],
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
    registers,
  });
  const decisions = new Histogram({
    name: 'rate_limit_decision_seconds',
    help: 'Time until the rate limit let a request pass or refused it',
    labelNames: ['decision'],
    buckets: [0.001, 0.005, 0.025, 0.1, 0.25],
    registers,
  });
  const storeErrors = counter(
    'rate_limit_store_errors_total',
    'Requests to the store of the rate limit that failed or came too late',
  );
  const inFlight = gauge('http_requests_in_flight', 'Pages being worked on');
  const inFlightLimit = gauge(
    'http_requests_in_flight_limit',
    'MAX_REQUESTS_IN_FLIGHT: pages that are worked on at most',
  );
  const queries = gauge('database_queries_in_flight', 'Queries that the database has not answered yet');
  inFlightLimit.set(maxRequestsInFlight);
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
    storeFailed: () => storeErrors.inc(),
    queries: (count: number) => queries.set(count),
    /** Adds the metrics of the process itself: memory, event loop, garbage collection. */
    collectDefaults: () => {
      collectDefaultMetrics({ register: registry });
      // Gauges named like counters: the sums of those without `_total`.
      for (const what of ['handles', 'requests', 'resources'])
        registry.removeSingleMetric(`nodejs_active_${what}_total`);
    },
    contentType: registry.contentType,
    text: () => registry.metrics(),
  };
}
