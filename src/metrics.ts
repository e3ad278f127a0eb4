/** The service's metrics, for Prometheus. They are always collected, since that costs almost nothing. */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { contract } from './contract.js';

export type Metrics = ReturnType<typeof createMetrics>;

/** Creates the metrics of a service that sends at most `maxReads` reads to its database at once. */
export function createMetrics(maxReads: number) {
  const registry = new Registry();
  const registers = [registry];
  const gauge = (name: string, help: string) => new Gauge({ name, help, registers });
  const counter = (name: string, help: string) => new Counter({ name, help, registers });
  const durations = new Histogram({
    name: 'http_request_duration_seconds',
    help: 'Time to respond, by route (list or other) and status',
    labelNames: ['route', 'status'],
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
    registers,
  });
  const decisions = new Histogram({
    name: 'rate_limit_decision_seconds',
    help: 'Time until the rate limit allowed or refused a request',
    labelNames: ['decision'],
    buckets: [0.001, 0.005, 0.025, 0.1, 0.25],
    registers,
  });
  const storeErrors = counter('rate_limit_store_errors_total', 'Rate limit store requests that failed or timed out');
  const cutOff = counter('http_connections_cut_off_total', 'Connections cut off because too much was held for clients');
  const queries = gauge('database_queries_in_flight', 'Reads that wait for the database, sent or not');
  gauge('database_queries_in_flight_limit', 'The most reads that are sent at once; the rest wait').set(maxReads);
  const build = { name: 'branded_phone_numbers_build_info', help: 'The running version; always 1', registers };
  new Gauge({ ...build, labelNames: ['version'] }).set({ version: contract.info.version }, 1);
  // Prometheus sees no increase in a counter that first appears with the value 1, so those that alerts use start at 0.
  for (const status of [200, 429, 500, 503]) durations.zero({ route: 'list', status });
  durations.zero({ route: 'other', status: 500 });
  for (const decision of ['passed', 'refused']) decisions.zero({ decision });
  /** Adds a metric that each scrape computes. */
  const computed = (name: string, help: string, compute: () => Promise<number>) => {
    const collect = async () => metric.set(await compute());
    const metric: Gauge = new Gauge({ name: `branded_phone_numbers_${name}`, help, registers, collect });
  };
  return {
    observeResponse: (route: 'list' | 'other', status: number, seconds: number) =>
      durations.observe({ route, status }, seconds),
    observeDecision: (allowed: boolean, seconds: number) =>
      decisions.observe({ decision: allowed ? 'passed' : 'refused' }, seconds),
    countStoreFailure: () => storeErrors.inc(),
    countCutOff: (count: number) => cutOff.inc(count),
    setQueries: (count: number) => queries.set(count),
    /** Adds the metrics of the process: memory, event loop, garbage collection. */
    collectDefaults: () => {
      collectDefaultMetrics({ register: registry });
      // These gauges have names of counters; each is only the sum of the gauge without `_total`.
      for (const kind of ['handles', 'requests', 'resources'])
        registry.removeSingleMetric(`nodejs_active_${kind}_total`);
    },
    collectReadiness: (isReady: () => Promise<boolean>) =>
      computed('ready', '1 if /readyz responds with 200, otherwise 0', async () => Number(await isReady())),
    collectExpiringKeys: (count: () => Promise<number>) =>
      computed(
        'keys_expiring',
        'Active API keys that expire within 14 days; NaN if the database does not respond',
        count,
      ),
    contentType: registry.contentType,
    text: () => registry.metrics(),
  };
}
