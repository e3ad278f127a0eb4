/** The Kubernetes manifest: valid by Kubernetes's schemas, and consistent with the service's settings. */
import { readFileSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse, stringify } from 'yaml';
import { readConfig } from '../../src/config/config.js';
import { listen } from '../../src/service/http/httpServer.js';
import { environmentOf, MANIFEST, resource, scheduledImport } from '../support/manifest.js';
import { isInstalled, KUBERNETES_VALIDATE, outcomeOf } from '../support/programs.js';
import { useTemporaryFolder } from '../support/temporaryFolder.js';

/** The oldest version in use, and the newest with published schemas. */
const VERSIONS = ['-k', '1.30', '-k', '1.37'];
/** The maximum time to stop, beyond DRAIN_SECONDS and REQUEST_TIMEOUT_SECONDS (docs/operations.md). */
const STOP_SECONDS = 3;

describe.skipIf(!isInstalled(KUBERNETES_VALIDATE))('kubernetes-validate', () => {
  const folder = useTemporaryFolder('branded-phone-numbers-deploy-');
  const validate = (file: string) => outcomeOf(KUBERNETES_VALIDATE, ['--strict', ...VERSIONS, file]);

  it('accepts the manifest', async () => {
    expect(await validate(MANIFEST)).toMatchObject({ status: 0 });
  });

  it('accepts the scheduled import of docs/imports.md', async () => {
    const file = join(folder.path, 'scheduled.yaml');
    await writeFile(file, stringify(scheduledImport()));
    expect(await validate(file)).toMatchObject({ status: 0 });
  });

  it('rejects a manifest with a misspelt member', async () => {
    const file = join(folder.path, 'misspelt.yaml');
    await writeFile(file, (await readFile(MANIFEST, 'utf8')).replace('readinessProbe:', 'readynessProbe:'));
    const { status, output } = await validate(file);
    expect(status).not.toBe(0);
    expect(output).toContain('readynessProbe');
  });
});

describe('the manifest', () => {
  const deployment = resource('Deployment');
  const pod = deployment.spec.template.spec;
  const [container] = pod.containers;
  const podMonitor = parse(readFileSync('deploy/kubernetes/pod-monitor.yaml', 'utf8'));

  it.each(['Deployment', 'Job'] as const)('gives the %s only valid settings, and no addresses of Services', (kind) => {
    // Otherwise the environment would contain the addresses of all Services.
    expect(resource(kind).spec.template.spec.enableServiceLinks).toBe(false);
    const { NODE_ENV, NODE_OPTIONS, ...settings } = environmentOf(kind);
    expect(Object.keys(settings).filter((name) => !Object.keys(readConfig({})).includes(name))).toEqual([]);
    expect(() => readConfig(settings)).not.toThrow();
  });

  it('names an address for pods with IPv6 addresses alone, on which an instance listens on both', async () => {
    const [, host = ''] =
      /# If pods have IPv6 addresses.* HOST and METRICS_HOST are "(.*)"/.exec(readFileSync(MANIFEST, 'utf8')) ?? [];
    const server = createServer((_request, response) => response.end());
    await listen(server, readConfig({ HOST: host, AUTH: 'none', PORT: '0' }), ['HOST', 'PORT']);
    const { port } = server.address() as AddressInfo;
    for (const address of ['[::1]', '127.0.0.1']) expect((await fetch(`http://${address}:${port}`)).status).toBe(200);
    server.close();
  });

  it('has labels that match its selectors, the ports of its settings, and probes on the metrics port', () => {
    const { labels } = deployment.spec.template.metadata;
    for (const selector of [
      deployment.spec.selector.matchLabels,
      resource('Service').spec.selector,
      resource('PodDisruptionBudget').spec.selector.matchLabels,
      resource('NetworkPolicy').spec.podSelector.matchLabels,
      podMonitor.spec.selector.matchLabels,
      pod.topologySpreadConstraints[0].labelSelector.matchLabels,
    ])
      expect(labels).toMatchObject(selector);
    // The Service must not send requests to the migration.
    expect(resource('Job').spec.template.metadata.labels).not.toMatchObject(resource('Service').spec.selector);
    const config = readConfig(environmentOf('Deployment'));
    const ports = Object.fromEntries(
      container.ports.map((port: { name: string; containerPort: number }) => [port.name, port.containerPort]),
    );
    expect(ports).toEqual({ http: config.PORT, metrics: config.METRICS_PORT });
    expect(resource('Service').spec.ports).toEqual([{ name: 'http', port: 80, targetPort: 'http' }]);
    for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe'])
      expect(container[probe].httpGet.port).toBe('metrics');
  });

  it('lets anyone send requests, and Prometheus read metrics under the job of the alerts', () => {
    const [anyone, prometheus] = resource('NetworkPolicy').spec.ingress;
    expect(anyone).toEqual({ ports: [{ port: 'http' }] });
    expect(prometheus).toMatchObject({ from: [{ namespaceSelector: {} }], ports: [{ port: 'metrics' }] });
    expect(podMonitor.spec.podMetricsEndpoints).toEqual([expect.objectContaining({ port: 'metrics' })]);
    const [scraping] = parse(readFileSync('deploy/prometheus/prometheus.yaml', 'utf8')).scrape_configs;
    expect(deployment.spec.template.metadata.labels[podMonitor.spec.jobLabel]).toBe(scraping.job_name);
  });

  it('gives an instance enough time to stop', () => {
    const { DRAIN_SECONDS, REQUEST_TIMEOUT_SECONDS } = readConfig(environmentOf('Deployment'));
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(DRAIN_SECONDS + REQUEST_TIMEOUT_SECONDS + STOP_SECONDS);
    // The pod must be unready, and get no new requests, before it stops listening.
    const { periodSeconds, failureThreshold } = container.readinessProbe;
    expect(failureThreshold).toBeGreaterThan(1);
    expect(DRAIN_SECONDS).toBeGreaterThan(periodSeconds * failureThreshold);
  });

  it('keeps an instance running while a node is drained or an upgrade rolls out', () => {
    const { maxUnavailable } = resource('PodDisruptionBudget').spec;
    expect(deployment.spec.replicas).toBeGreaterThan(maxUnavailable);
    expect(deployment.spec.strategy.rollingUpdate.maxUnavailable).toBe(0);
  });

  it('migrates with the image that serves', () => {
    const [migration] = resource('Job').spec.template.spec.containers;
    expect(migration.image).toBe(container.image);
  });
});
